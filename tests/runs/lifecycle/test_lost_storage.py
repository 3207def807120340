"""Full disks and folders that go away while a run writes to them: said, the last good checkpoint kept, and gone on."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.errors import ResourceError
from rayfl.runs.metrics_file import MetricsFile
from tests.callbacks.scene import PLAIN, STATEFUL, tables
from tests.runs.lifecycle.scene import Does, rows

pytestmark = pytest.mark.usefixtures("written_at_once")

WIDE = "wide" * 1000
EACH_ROUND: dict[str, Any] = {"phases": [STATEFUL | {"rounds": 8}], "checkpoint": {"rounds": 1}}


STOPS = {"rounds": 1, "on_failure": "stop"}


class Wide(Callback):
    """Makes lines long, so that a full disk has no room for them in what is left of a block."""

    def on_round(self, run: RunSoFar) -> None:
        run.log(**{WIDE: 1.0})


def run(folder: Path, *callbacks: Callback, resume: bool = False, **changes: Any) -> rayfl.Result:
    where: Any = {"resume": folder} if resume else {"folder": folder}
    scenario = tables(**EACH_ROUND) | changes
    return rayfl.run(scenario, backend="inline", callbacks=list(callbacks), console=Console(width=10_000), **where)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> rayfl.Result:
    return run(tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    # lazily, since a file there that is still open would keep it busy
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leaves no byte."""
    with (disk / "filling").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0" * 512)


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_nothing_else(
    small_disk: Path, undisturbed: rayfl.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = small_disk / "run", list[str]()

    def fills() -> None:
        kept.extend(path.name for path in folder.glob("checkpoints/*.json"))
        fill(small_disk)

    def empties() -> None:
        assert sorted(path.name for path in folder.glob("checkpoints/*.json")) == sorted(kept)
        (small_disk / "filling").unlink()

    result = run(folder, Wide(), Does(round=4, what=fills), Does(round=6, what=empties))
    told = capsys.readouterr().out
    assert len(kept) == 2
    assert told.count("warning: no checkpoint was written; the run continues: cannot write") in (1, 2, 3)
    assert told.count("warning: some records are not written yet; the run continues: cannot write") == 1
    assert "No space left on device" in told
    left = rows(result.directory)
    assert all(row.pop(WIDE) == 1.0 for row in left)
    assert left == rows(undisturbed.directory)
    assert sorted(folder.glob("checkpoints/*.json"))[-1].name > max(kept)


def test_a_run_that_a_full_disk_stops_goes_on_from_its_last_good_checkpoint(
    small_disk: Path, undisturbed: rayfl.Result
) -> None:
    folder = small_disk / "run"
    with pytest.raises(ResourceError, match=r"No space left.*; with checkpoint.on_failure = 'continue' the run would"):
        run(folder, Does(round=4, what=lambda: fill(small_disk)), checkpoint=STOPS)
    (small_disk / "filling").unlink()
    assert rows(run(folder, resume=True).directory) == rows(undisturbed.directory)


@pytest.mark.parametrize("lost", ["checkpoints/states", "checkpoints", "."])
def test_a_folder_that_is_removed_is_made_again(
    lost: str, undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    result = run(folder, Does(round=4, what=lambda: (folder / lost).resolve().rename(tmp_path / "lost")))
    told = capsys.readouterr().out
    assert (f"'{folder}' was removed" in told or "it was removed" in told) == (lost == ".")
    assert rows(folder) == rows(undisturbed.directory)
    left = {path.name for path in folder.iterdir()}
    assert {"scenario.toml", "environment.json", "metrics.jsonl", "model.safetensors", "status.json"} <= left
    assert json.loads((folder / "status.json").read_text())["status"] == "finished"
    more = rayfl.run(
        resume=folder, backend="inline", overrides={"phases.stateful.rounds": 9}, console=Console(width=10_000)
    )
    again = capsys.readouterr().out
    assert re.search("continues after round [4-8]", again)
    assert "warning" not in again
    assert more.metrics["test_loss"].to_pylist()[:8] == result.metrics["test_loss"].to_pylist()


def test_a_run_whose_folder_is_removed_stops_if_it_shall(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(ResourceError, match=r"was removed while the run was writing to it; with checkpoint.on_failure"):
        run(folder, Does(round=4, what=lambda: folder.rename(tmp_path / "lost")), checkpoint=STOPS)
    assert json.loads((folder / "status.json").read_text())["status"] == "failed"
    assert (folder / "model.safetensors").is_file()


def test_scores_of_clients_survive_a_disk_that_is_full(small_disk: Path) -> None:
    scored: dict[str, Any] = {"phases": [PLAIN | {"rounds": 8}], "evaluation": {"every": 1, "per_client": True}}
    fills, empties = lambda: fill(small_disk), lambda: (small_disk / "filling").unlink()
    result = run(small_disk / "run", Does(round=3, what=fills), Does(round=5, what=empties), **scored)
    scores = pq.read_table(result.directory / "clients.parquet")
    assert sorted(set(scores["round"].to_pylist())) == list(range(1, 9))
    assert len(scores) == 8 * 12


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a full disk leaves it: some bytes are written, and then no more."""
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, reopened=False)
    file.add("first")
    whole = file._file

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

        def write(self, data: Any) -> int:
            if whole.tell() >= 9:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return whole.write(bytes(data[:3])) or 0

    monkeypatch.setattr(file, "_file", Full())
    with pytest.raises(OSError, match="No space left"):
        file.add("second")
    assert path.read_text() == "first\nsec"
    monkeypatch.undo()
    file.add("third")
    file.close()
    assert path.read_text() == "first\nsecond\nthird\n"
