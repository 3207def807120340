"""Checks that a path which a record, a list of files or a remote listing names lies inside its folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rayfl.errors import RayflError

_SEPARATORS = re.compile(r"[/\\]")
_DRIVE = re.compile("[A-Za-z]:")
_SHOWN = 100


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
    shown = repr(place)[:_SHOWN]
    return error(f"{source}: {shown} is not a place inside its folder{how}; get the file again from whoever wrote it")
