"""What is being prepared in a folder, and which fragments are whole, so that an interrupted preparation can go on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfl.data.prepared.fragments import check_file
from rayfl.data.prepared.manifest import Fragment
from rayfl.errors import DataError
from rayfl.files import atomic_write, reading

PROGRESS = "progress.jsonl"
"""A line with the plan, then a line per fragment; removed at the end."""


def changed(folder: Path) -> DataError:
    """The error for a source that is not what it was when the preparation began."""
    return DataError(f"{folder}: the source changed while it was prepared; remove the folder and prepare it again")


class Progress:
    """The fragments of a folder that are whole, by their place."""

    def __init__(self, folder: Path, fragments: dict[str, Fragment]) -> None:
        self._folder, self.fragments = folder, fragments

    def add(self, fragment: Fragment) -> None:
        """Notes a fragment that is whole now."""
        self._append(fragment.model_dump_json())
        self.fragments[fragment.file] = fragment

    def _append(self, line: str) -> None:
        with (self._folder / PROGRESS).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def of(folder: Path, plan: Mapping[str, Any], digest: str) -> Progress:
        """Begins, or goes on where an interrupted preparation of the same data stopped."""
        file, progress = folder / PROGRESS, Progress(folder, {})
        with reading(file, "as the notes of a preparation"):
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            lines = text.split("\n")[:-1]  # the last may be cut short
            begun = json.loads(lines[0]) if lines else plan
            whole, begun_with = [*map(Fragment.model_validate_json, lines[1:])], begun["facts"]["digest"]
        if not lines:
            file.unlink(missing_ok=True)
            progress._append(json.dumps(plan))
            return progress
        if begun_with != digest:
            raise changed(folder)
        if begun != json.loads(json.dumps(plan)):
            raise DataError(f"{folder}: was begun with other options; give the same, or remove the folder")
        with atomic_write(file) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for fragment in whole:
            try:
                check_file(folder, fragment)
            except DataError:
                continue
            progress.fragments[fragment.file] = fragment
        return progress
