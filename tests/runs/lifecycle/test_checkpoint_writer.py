"""Checkpoints join the others in a separate thread, and their outcome is reported all the same."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import PrivateAttr
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.errors import ResourceError
from rayfl.runs.checkpoint_writer import CheckpointWriter
from rayfl.runs.checkpoints import Checkpoints, StoredCheckpoint
from tests.callbacks.scene import tables
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, snapshot_of
from tests.runs.lifecycle.scene import ROUNDS, SCENE, prepared


class Opens(Callback):
    """Lets a checkpoint be added, once a later round is over."""

    round: int
    _gate: Event = PrivateAttr(default_factory=Event)

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == self.round:
            self._gate.set()


def run(folder: Path, *callbacks: Callback, **checkpoint: Any) -> rayfl.Result:
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 4} | checkpoint}
    return rayfl.run(scenario, backend="inline", folder=folder, callbacks=callbacks, console=Console(width=1000))


def test_no_round_waits_for_a_checkpoint_that_joins_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens, add, waited = Opens(name="opens", round=6), Checkpoints.add, list[bool]()

    def slowly(self: Checkpoints, checkpoint: StoredCheckpoint) -> ResourceError | None:
        waited.append(opens._gate.wait(60))
        return add(self, checkpoint)

    monkeypatch.setattr(Checkpoints, "add", slowly)
    run(tmp_path, opens)
    assert waited == [True, True], "after rounds 4 and 8"
    assert [path.stem for path in sorted((tmp_path / "checkpoints").glob("*.json"))] == [
        "round-000000004",
        "round-000000008",
    ]


def full(self: Checkpoints, checkpoint: StoredCheckpoint) -> None:
    raise ResourceError("cannot write the checkpoint: no room")


def test_one_that_cannot_be_written_is_told_by_the_end_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Checkpoints, "add", full)
    run(tmp_path, rounds=ROUNDS)
    assert (
        "no checkpoint was written; the run continues: cannot write the checkpoint: no room" in capsys.readouterr().out
    )


def test_or_ends_the_run_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "add", full)
    with pytest.raises(ResourceError, match="no room; with checkpoint"):
        run(tmp_path, on_failure="stop")


def test_records_that_change_meanwhile_do_not_change_the_checkpoint(tmp_path: Path) -> None:
    job, _ = prepared()
    scheduler, _ = cast(job, 1)
    next(scheduler.run())
    checkpoints = Checkpoints(tmp_path, keep=1)
    writer, records = CheckpointWriter(checkpoints), {"rows": [1]}
    writer.begin(snapshot_of(scheduler, MemoryStore()).to_json(), records)
    records["rows"].append(2)
    assert writer.collect(wait=True) is None
    writer.close()
    (added,) = checkpoints.newest_first()
    assert isinstance(added, StoredCheckpoint)
    assert added.records == {"rows": [1]}
