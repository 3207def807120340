"""Files that are complete or absent, even after a crash; and files that others wrote, in which any damage is one error.

Such an error names the file, and paths stay inside their folder."""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayfl.errors import DataError, RayflError


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """Yields a temporary path to write to; at the end of the block it is synced and renamed to `path`.

    The file gets the mode of a newly created file in this process, whichever library writes it. If the block raises,
    the temporary file is removed and `path` is left unchanged.

    Args:
        path: The file to write.
        folder: Where the temporary file is, on the same file system; by default next to `path`.

    Yields:
        The path of an empty file in that folder, under a unique name.
    """
    temporary = (folder or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode & 0o777
        yield temporary
        temporary.chmod(mode)
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes strings, numbers, lists and mappings as JSON, atomically.

    Args:
        path: The file to write.
        content: The content; NaN and infinities raise ValueError, since JSON has none.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(as_json(content), encoding="utf-8")


def as_json(content: Mapping[str, Any]) -> str:
    """The text that `write_json` writes."""
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


_SEPARATORS = re.compile(r"[/\\]")
_DRIVE = re.compile("[A-Za-z]:")
_PLACE_SHOWN = 100


def inside(folder: Path, place: object, source: object, error: type[RayflError]) -> Path:
    """The path of a place inside a folder. Use it for every path that comes from a file, before reading or removing it.

    Args:
        folder: The folder; it may itself be a symbolic link.
        place: The place, as the file names it.
        source: What names the place, for the message.
        error: The type of error to raise.

    Raises:
        RayflError: The place is absolute, climbs with `..`, or leads out of the folder by a symbolic link.
    """
    path = folder / relative(place, source, error)
    root = os.path.realpath(folder)
    if not os.path.realpath(path).startswith(f"{root.rstrip(os.sep)}{os.sep}"):
        raise _outside(place, source, error, f", by a symbolic link out of '{folder}'")
    return path


def relative(place: object, source: object, error: type[RayflError]) -> str:
    """Checks a place as `inside` does, but by its name alone, and returns it.

    Links are followed: a folder at a URI has none, and the files of data may be links into a cache.
    """
    try:
        if isinstance(place, str) and b"\0" not in os.fsencode(place):
            parts = _SEPARATORS.split(place)
            if parts[0] and parts[-1] not in ("", ".") and ".." not in parts and not _DRIVE.match(place):
                return place
    except UnicodeEncodeError:  # no file can have this name
        pass
    raise _outside(place, source, error)


def _outside(place: object, source: object, error: type[RayflError], how: str = "") -> RayflError:
    shown = repr(place)[:_PLACE_SHOWN]
    return error(f"{source}: {shown} is not a place inside its folder{how}; get the file again from whoever wrote it")


_MESSAGE_SHOWN = 300
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
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__} instead of an object")
        return content


def _said(raised: Exception) -> str:
    text = " ".join(str(raised).split())[:_MESSAGE_SHOWN]
    if isinstance(raised, KeyError):
        return f"it has no {text}"
    return text or type(raised).__name__
