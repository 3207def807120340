"""Default folders for data and caches."""

from __future__ import annotations

import os
from pathlib import Path

from rayfl.errors import DataError

_HOME = "~/.cache/rayfl"


def data_folder(named: str | Path | None = None) -> Path:
    """The folder with real data.

    Args:
        named: A folder named by the user. By default `$RAYFL_DATA` or `~/.cache/rayfl/data`, which need not exist.

    Raises:
        DataError: The named folder does not exist.
    """
    if named is None:
        return Path(os.environ.get("RAYFL_DATA") or f"{_HOME}/data").expanduser()
    if not os.path.isdir(named):  # noqa: PTH112 - unlike Path.is_dir, also false for a name that is too long
        raise DataError(f"--data-dir: there is no folder '{named}'")
    return Path(named)


def cache_folder() -> Path:
    """The folder for files that can be regenerated: `$RAYFL_CACHE` or `~/.cache/rayfl`; it need not exist."""
    return Path(os.environ.get("RAYFL_CACHE") or _HOME).expanduser()
