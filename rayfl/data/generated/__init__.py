"""Data that is made, not read: always available, and the stand-in where files are missing."""
