"""Files that are complete or absent, even after a crash."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
