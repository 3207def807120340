"""Files that are read whole, together with the digest that a run's records keep."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rayfl.errors import DataError

FileDigest = tuple[str, str]
"""A file's path and its sha256 in hexadecimal."""


def read_file(file: Path) -> tuple[bytes, FileDigest]:
    """Reads a file once, for its content and its digest alike.

    Raises:
        DataError: It cannot be read; names it.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
    return content, (str(file), hashlib.sha256(content).hexdigest())
