"""Where rayfl's commands keep data and caches, unless they are told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from rayfl.errors import DataError

_HOME = "~/.cache/rayfl"


def data_folder(named: str | Path | None = None) -> Path:
    """The folder with real data.

    Args:
        named: Where the user says that it is. By default `$RAYFL_DATA`, or `~/.cache/rayfl/data`, which need not exist.

    Raises:
        DataError: The named folder does not exist.
    """
    if named is None:
        return Path(os.environ.get("RAYFL_DATA") or f"{_HOME}/data").expanduser()
    if not os.path.isdir(named):  # noqa: PTH112 - unlike Path's, false as well for a name that is too long
        raise DataError(f"--data-dir: there is no folder '{named}'")
    return Path(named)


def cache_folder() -> Path:
    """The folder for what can be made again: `$RAYFL_CACHE`, or `~/.cache/rayfl`; it need not exist."""
    return Path(os.environ.get("RAYFL_CACHE") or _HOME).expanduser()
