"""metrics.jsonl, written so that no line is lost or written twice, and can be read while a run writes it.

Lines survive a full disk and a folder that disappears.
"""

from __future__ import annotations

import json
import os
from io import FileIO
from pathlib import Path
from typing import Any

from rayfl.errors import CheckpointError
from rayfl.files import atomic_write, reading


class MetricsFile:
    """A file of lines, each visible to readers as soon as it is added.

    Args:
        path: The file.
        reopened: Whether the file may exist already; if it was removed, it starts empty.

    Raises:
        FileExistsError: The file exists and is not `reopened`.
    """

    def __init__(self, path: Path, reopened: bool) -> None:
        self._path = path
        self._waiting: list[bytes] = []
        path.open("a" if reopened else "x").close()
        self._file, self._size = self._opened()

    def add(self, line: str) -> None:
        """Writes a line, and earlier ones that could not be written.

        Raises:
            OSError: They cannot be written; the next call tries again.
        """
        self._waiting.append(line.encode() + b"\n")
        self._write()

    def sync(self) -> None:
        """Flushes all lines to disk.

        Raises:
            OSError: They cannot be written.
        """
        self._write()
        os.fsync(self._file.fileno())

    def keep(self, lines: int) -> None:
        """Keeps only the first `lines` lines, and checks each of them, since those who read the file would fail.

        Raises:
            CheckpointError: There are fewer, or one of them is damaged.
        """
        text = self._path.read_bytes()
        first_lines = text[: text.rfind(b"\n") + 1].splitlines(keepends=True)[:lines]
        if len(first_lines) < lines:
            raise CheckpointError(f"'{self._path}' has fewer than the {lines} lines that the run had written")
        for number, line in enumerate(first_lines, start=1):
            with reading(f"'{self._path}': line {number}", "as a JSON object", CheckpointError):
                dict(json.loads(line))
        self._file.close()
        self._replace(b"".join(first_lines))

    def is_gone(self) -> bool:
        """Whether the file or its folder was removed."""
        return not self._path.exists()

    def recreate(self) -> None:
        """Recreates the file and its folder, with the lines that it had when it was removed.

        Raises:
            OSError: They cannot be created.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file.seek(0)
        content = self._file.read(self._size)  # a removed file can still be read while it is open
        self._file.close()
        self._replace(content)

    def close(self) -> None:
        """Writes pending lines and closes the file; does nothing the second time.

        Raises:
            OSError: They cannot be written.
        """
        if not self._file.closed:
            try:
                self._write()
            finally:
                self._file.close()

    def abandon(self) -> None:
        """Closes the file without the pending lines."""
        self._waiting.clear()
        self._file.close()

    def _write(self) -> None:
        if not self._waiting:
            return
        if self.is_gone():
            raise FileNotFoundError(None, "it was removed while the run was writing to it", str(self._path))
        self._file.truncate(self._size)  # a full disk may have left half a line
        self._file.seek(self._size)
        unwritten: Any = memoryview(b"".join(self._waiting))
        size = self._size + len(unwritten)
        while unwritten:
            unwritten = unwritten[self._file.write(unwritten) :]
        self._size = size
        self._waiting.clear()

    def _replace(self, content: bytes) -> None:
        with atomic_write(self._path) as temporary:
            temporary.write_bytes(content)
        self._file, self._size = self._opened()

    def _opened(self) -> tuple[FileIO, int]:
        return FileIO(self._path, "r+"), self._path.stat().st_size
