"""Checks whether Python keeps the libraries compiled, without which each of Ray's processes starts more slowly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from rayfl.doctor.check import Check

LIBRARIES = ("torch", "ray", "opacus", "pydantic")
"""Some that take long to compile."""


def uncompiled(names: Iterable[str] = LIBRARIES) -> list[Path]:
    """The folders of those installed libraries that Python neither has compiled nor can keep compiled."""
    specs = [spec for name in names if (spec := find_spec(name)) is not None and spec.origin is not None]
    sources = [Path(str(spec.origin)) for spec in specs]
    return [
        source.parent
        for source in sources
        if not Path(cache_from_source(str(source))).exists()
        and (sys.dont_write_bytecode or not os.access(source.parent, os.W_OK))
    ]


def bytecode_check(folders: list[Path], switched_off: bool) -> Iterator[Check]:
    """Warns of uncompiled libraries.

    Args:
        folders: Their folders.
        switched_off: Whether Python is told not to write bytecode; else their folders are not writable.
    """
    if not folders:
        return
    why = "PYTHONDONTWRITEBYTECODE is set" if switched_off else "their folders are not writable"
    found = f"{', '.join(folder.name for folder in folders)}: every process compiles them anew, since {why}"
    remedy = f"python -m compileall -q {folders[0].parent}" + (", or unset it" if switched_off else "")
    yield Check("libraries", "bytecode", found, "warning", remedy)
