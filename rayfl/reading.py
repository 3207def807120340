"""Turns any exception from reading a damaged file into one error that names the file."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayfl.errors import DataError, RayflError

_SHOWN = 300
"""Characters of the original message to show."""


@contextmanager
def reading(file: Path | str, kind: str = "", error: type[RayflError] = DataError) -> Iterator[None]:
    """Turns any exception of a block that reads a file into one error.

    Libraries have no common exception for a damaged file: pyarrow, Pillow, NumPy and PyTorch alone raise two dozen
    kinds, including MemoryError and RecursionError. Every exception counts as damage, so the block should do little
    else than read. Errors of rayfl pass unchanged.

    Args:
        file: The file, for the message.
        kind: The format: "as Parquet". Empty if the file name makes it clear.
        error: The type of error to raise.

    Raises:
        RayflError: Names the file.
    """
    if isinstance(file, Path):
        check_regular(file, str(file), error)
    try:
        yield
    except RayflError:
        raise
    except Exception as raised:
        failed = f"{file}: cannot be read{f' {kind}' if kind else ''}"
        if isinstance(raised, OSError) and raised.errno is not None:  # libraries raise it without one for damage
            raise error(f"{failed} ({raised.strerror})") from raised
        raise error(f"{failed}, truncated or corrupt? ({_said(raised)})") from raised


def check_regular(file: Path, named: str, error: type[RayflError] = DataError) -> None:
    """Checks that what a scenario names is a file or a folder, since a device or a pipe can be read without end.

    Args:
        file: Its path; a missing file is left to who reads it.
        named: The file, as the message names it.
        error: The type of error to raise.

    Raises:
        RayflError: It is something else.
    """
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise error(f"{named}: is not a regular file; name one")


def read_json_object(file: Path, error: type[RayflError] = DataError) -> dict[str, Any]:
    """The content of a file with one JSON object.

    Raises:
        RayflError: The file does not exist or is damaged; names the file.
    """
    with reading(file, "as JSON", error):
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__} instead of an object")
        return found


def _said(raised: Exception) -> str:
    text = " ".join(str(raised).split())[:_SHOWN]
    if isinstance(raised, KeyError):
        return f"it has no {text}"
    return text or type(raised).__name__
