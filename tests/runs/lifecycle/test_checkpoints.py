"""What is removed when a checkpoint is added, and what never is."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.sampling import SamplingSnapshot
from rayfl.engine.privacy_budget import BudgetSnapshot
from rayfl.engine.server import ServerSnapshot, StoredServerState
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import Stored
from rayfl.engine.totals import Traffic
from rayfl.errors import ResourceError
from rayfl.runs.checkpoints import FORMAT, Checkpoints, StoredCheckpoint
from tests.counting import calls_of


def snapshot_after(round: int, stored: Stored) -> RunSnapshot:
    index = RoundIndex(0, round, round)
    server = ServerSnapshot(StoredServerState(index, stored), {})
    return RunSnapshot(index, SamplingSnapshot(), Traffic(), [], BudgetSnapshot(), {}, server, [])


class Run:
    """Writes checkpoints of a model that is its round's number.

    Args:
        folder: The run's own.
    """

    def __init__(self, folder: Path) -> None:
        self.checkpoints = Checkpoints(folder, keep=2)
        self.manifests = folder / "checkpoints"

    def write(self, value: int) -> Stored:
        return self.checkpoints.store.write({"model": np.full(3, value)})

    def add(self, round: int) -> Stored:
        stored = self.write(round)
        assert self.checkpoints.add(StoredCheckpoint(snapshot_after(round, stored), {})) is None
        return stored

    def kept(self, *states: Stored) -> list[bool]:
        return [bool(self.checkpoints.store.held([stored])) for stored in states]

    def rounds(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("round-")) for path in self.manifests.glob("*.json"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_the_states_of_a_snapshot_that_is_being_written_stay_until_the_run_is_opened_again(run: Run) -> None:
    """On a cluster the next snapshot may be under way when those who follow the run hear of one."""
    run.add(1)
    under_way = run.write(100)
    run.add(2)
    run.add(3)
    run.add(4)
    assert run.kept(under_way) == [True]
    run.checkpoints.sweep()
    assert run.kept(under_way) == [False]


def test_adding_a_checkpoint_does_not_walk_through_all_states(run: Run) -> None:
    counts = []
    for round, states in ((1, range(200)), (2, range(200, 600))):
        for value in states:
            run.write(value)
        counts.append(calls_of(lambda round=round: run.add(round)))  # type: ignore[misc]
    assert counts[1] - counts[0] < 400  # the folder of states has 256 folders at most, here some 90 more of them


def test_what_killed_writers_left_is_removed_and_what_is_being_written_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr("rayfl.files._sync", synced.append)
        run.add(1)
    temporary = [path for path in synced if path.name.startswith(".")]
    assert len(temporary) == 2  # a state and a manifest
    for path in temporary:
        path.touch()
        os.utime(path, (0, 0))
    young = [path.with_name(f"{path.name}0") for path in temporary]
    for path in young:  # of the next snapshot, which hosts may have begun long before this one is in its place
        path.touch()
        os.utime(path, (time.time() - 500,) * 2)
    run.add(2)
    assert not any(path.exists() for path in temporary)
    assert all(path.exists() for path in young)


def test_files_that_an_old_checkpoint_shares_with_a_kept_one_stay(run: Run) -> None:
    first = run.add(1)
    run.checkpoints.add(StoredCheckpoint(snapshot_after(2, first), {}))
    third = run.add(3)
    assert (run.rounds(), run.kept(first, third)) == ([2, 3], [True, True])
    run.add(4)
    assert (run.rounds(), run.kept(first, third)) == ([3, 4], [False, True])


def test_nothing_is_removed_while_a_kept_manifest_cannot_be_read(run: Run) -> None:
    first, second = run.add(1), run.add(2)
    (run.manifests / "round-000000002.json").write_text("{}")
    third = run.add(3)
    assert (run.rounds(), run.kept(first, second, third)) == ([1, 2, 3], [True] * 3)
    run.checkpoints.sweep()
    assert run.kept(first, second, third) == [True] * 3
    run.add(4)
    assert (run.rounds(), run.kept(first, third)) == ([3, 4], [False, True])


def test_states_that_could_not_be_removed_are_removed_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(places: object) -> None:
        raise ResourceError("cannot remove")

    first = run.add(1)
    run.add(2)
    with monkeypatch.context() as patch:
        patch.setattr(run.checkpoints.store, "remove", refuses)
        with pytest.raises(AssertionError):
            run.add(3)
    assert (run.rounds(), run.kept(first)) == ([2, 3], [True])
    run.add(4)
    assert (run.rounds(), run.kept(first)) == ([3, 4], [False])


@pytest.mark.parametrize("place", ["../../../precious.txt", "{folder}/precious.txt", "link/precious.txt", ""])
def test_a_manifest_that_names_a_file_outside_its_folder_is_damaged_and_nothing_is_removed(
    place: str, tmp_path: Path
) -> None:
    """Its digest fits: it shows that the content is unchanged, not that rayfl wrote it."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    run = Run(tmp_path / "run")
    stored = run.add(1)
    (tmp_path / "run" / "checkpoints" / "states" / "link").symlink_to(tmp_path)
    forged = run.manifests / "round-000000001.json"
    body = json.loads(forged.read_text())["body"].replace(stored.place, place.format(folder=tmp_path))
    digest = hashlib.sha256(body.encode()).hexdigest()
    forged.write_text(json.dumps({"format": FORMAT, "digest": digest, "body": body}))
    (found,) = run.checkpoints.newest_whole() if place.startswith("link") else run.checkpoints.newest_first()
    assert "is not a place inside its folder" in str(found)
    assert "round" in str(found)
    for round in range(2, 6):  # so that the old ones are removed
        run.checkpoints.add(StoredCheckpoint(snapshot_after(round, run.write(round)), {}))
    assert precious.read_text() == "mine"


def test_a_folder_of_states_that_is_a_link_keeps_working(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "scratch")
    run = Run(tmp_path / "run")
    first, *_ = [run.add(round) for round in (1, 2, 3)]
    assert run.kept(first) == [False]
    assert isinstance(next(run.checkpoints.newest_whole()), StoredCheckpoint)
