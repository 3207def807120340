"""Making way for a new run in the folder of another."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from rayfl.errors import ResourceError
from rayfl.runs.resume import move_aside
from rayfl.studies.grid.cell_runs import clear
from tests.studies.grid.test_going_on import cell_of


def test_what_is_moved_aside_gets_a_free_name_however_many_there_are(tmp_path: Path) -> None:
    """Others were removed meanwhile, or are in the way; a count of all entries may name one that exists."""
    folder = tmp_path / "run"
    (tmp_path / "run-stopped-1").mkdir()
    (tmp_path / "run-stopped-1" / "metrics.jsonl").write_text("of the first")
    (tmp_path / "run-stopped-2").write_text("a file")
    for number in (3, 4):
        folder.mkdir(exist_ok=True)
        (folder / "metrics.jsonl").write_text(f"of {number}")
        (folder / "run.log").write_text("stays")
        move_aside(folder, "run.log")
        assert (tmp_path / f"run-stopped-{number}" / "metrics.jsonl").read_text() == f"of {number}"
        assert [path.name for path in folder.iterdir()] == ["run.log"]
    assert (tmp_path / "run-stopped-1" / "metrics.jsonl").read_text() == "of the first"
    move_aside(tmp_path / "missing")


def test_a_folder_that_cannot_be_cleared_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, while a program still has one of its files open."""
    cell = cell_of(tmp_path)
    (cell.folder / "checkpoints").mkdir(parents=True)

    def busy(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr(shutil, "rmtree", busy)
    with pytest.raises(ResourceError) as caught:
        clear(cell, "run.log")
    assert str(caught.value) == (
        f"'{cell.folder / 'checkpoints'}' cannot be removed to make way for a new run (Directory not empty); end the "
        "program that writes there, or move it yourself"
    )
