"""Where rayfl's commands keep data and caches, unless they are told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

_HOME = "~/.cache/rayfl"


def data_folder() -> Path:
    """The folder with real data: `$RAYFL_DATA`, or `~/.cache/rayfl/data`; it need not exist."""
    return Path(os.environ.get("RAYFL_DATA") or f"{_HOME}/data").expanduser()


def cache_folder() -> Path:
    """The folder for what can be made again: `$RAYFL_CACHE`, or `~/.cache/rayfl`; it need not exist."""
    return Path(os.environ.get("RAYFL_CACHE") or _HOME).expanduser()
