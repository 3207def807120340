"""File formats in which data lies, read and written whole."""
