"""What a damaged file makes its reader raise, as one error that names the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayfl.errors import DataError, RayflError

_SHOWN = 300
"""Characters of a reader's own words."""


@contextmanager
def reading(file: Path | str, kind: str = "", error: type[RayflError] = DataError) -> Iterator[None]:
    """Makes one error of whatever the block raises while it reads a file.

    Readers of other libraries have no common exception for a damaged file: pyarrow, Pillow, NumPy and PyTorch alone
    raise two dozen kinds, MemoryError and RecursionError among them. What raises here is taken for damage, so the
    block should hold little else than the reading. Errors of rayfl pass.

    Args:
        file: What is read, for the message.
        kind: What it is read as: "as Parquet". Nothing where the name says so.
        error: What is raised.

    Raises:
        RayflError: Names the file.
    """
    try:
        yield
    except RayflError:
        raise
    except Exception as raised:
        failed = f"{file}: cannot be read{f' {kind}' if kind else ''}"
        if isinstance(raised, OSError) and raised.errno is not None:  # without a number it is a library's, for damage
            raise error(f"{failed} ({raised.strerror})") from raised
        raise error(f"{failed}, truncated or corrupt? ({_said(raised)})") from raised


def read_json_object(file: Path, error: type[RayflError] = DataError) -> dict[str, Any]:
    """The content of a file with one JSON object.

    Raises:
        RayflError: There is no such file, or it is damaged; names it.
    """
    with reading(file, "as JSON", error):
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, no object")
        return found


def _said(raised: Exception) -> str:
    text = " ".join(str(raised).split())[:_SHOWN]
    if isinstance(raised, KeyError):
        return f"it has no {text}"
    return text or type(raised).__name__
