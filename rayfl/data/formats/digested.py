"""Reads files together with the digests for the records of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rayfl.reading import reading

FileDigest = tuple[str, str]
"""Path of a file and its sha256 in hexadecimal."""


def read_file(file: Path) -> tuple[bytes, FileDigest]:
    """Reads the content of a file and computes its digest.

    Raises:
        DataError: The file cannot be read; names it.
    """
    with reading(file):
        content = file.read_bytes()
    return content, (str(file), hashlib.sha256(content).hexdigest())
