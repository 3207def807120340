"""Files that are read whole, together with the digest that a run's records keep."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rayfl.reading import reading

FileDigest = tuple[str, str]
"""A file's path and its sha256 in hexadecimal."""


def read_file(file: Path) -> tuple[bytes, FileDigest]:
    """Reads a file once, for its content and its digest alike.

    Raises:
        DataError: It cannot be read; names it.
    """
    with reading(file):
        content = file.read_bytes()
    return content, (str(file), hashlib.sha256(content).hexdigest())
