"""Generated data: always available, and the stand-in for missing files."""
