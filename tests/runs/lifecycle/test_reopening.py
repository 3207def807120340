"""A run that is left and reopened ends as if nothing had happened: model, records, callbacks."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.backends.inline import inline_session
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import ClientScalars, RoundDone, RoundSettled
from rayfl.engine.plain_events import plain_round, round_from
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.totals import Traffic
from rayfl.errors import RayflError, ResourceError
from rayfl.local.spending import Mechanism
from rayfl.models.flat import FlatModel
from rayfl.runs.archive import RunArchive
from rayfl.runs.records import Records
from rayfl.runs.run import Run
from tests.callbacks.scene import PLAIN, tables
from tests.engine.memory_store import MemoryStore
from tests.runs.lifecycle.scene import ROUNDS, Followed, Leaving, LeftError, followed, prepared, read_state


@pytest.fixture(scope="module")
def job() -> tuple[RunPlan, FlatModel]:
    return prepared()


@pytest.fixture(scope="module")
def undisturbed(job: tuple[RunPlan, FlatModel], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return followed(tmp_path_factory.mktemp("undisturbed") / "run", *job, inline_session).left()


def reopened(folder: Path, job: tuple[RunPlan, FlatModel], snapshot: Any) -> Followed:
    return followed(folder, *job, inline_session, state=read_state(folder), snapshot=snapshot)


def test_a_run_that_is_left_after_every_round_goes_on_as_if_it_had_not_been(
    job: tuple[RunPlan, FlatModel], undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    state, snapshot = None, None
    for round in range(1, ROUNDS):
        leaving = Leaving(round, round, round)
        with pytest.raises(LeftError):
            followed(tmp_path, *job, inline_session, leaving, state, snapshot)
        assert json.loads((tmp_path / "status.json").read_text())["status"] == "failed"
        state, snapshot = read_state(tmp_path), leaving.snapshot
    again = reopened(tmp_path, job, snapshot)
    assert again.left() == undisturbed
    for round, start in enumerate(entry for entry in again.memory._seen if entry[0] == "start"):
        shown = [entry[3] for entry in again.memory.seen() if entry[:2] == ["round", round]]
        evaluated = sum(row["round"] <= round for row in undisturbed["metrics"])
        assert start[:3] == ["start", round, evaluated]
        assert start[3:] == shown or round == 0


@pytest.mark.parametrize(("state_after", "killed_after"), [(3, 7), (6, 7), (3, 3)])
def test_records_that_a_killed_run_wrote_after_its_state_come_once(
    state_after: int, killed_after: int, job: tuple[RunPlan, FlatModel], undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """A killed process leaves the contents of its folder from before it closes anything."""
    leaving = Leaving(3, state_after, 0)

    def copied(run: Run, session: BackendSession, settled: RoundSettled) -> None:
        leaving(run, session, settled)
        if settled.round == killed_after:
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
            with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
                file.write('{"phase": "half a li')
            raise LeftError

    with pytest.raises(LeftError):
        followed(tmp_path / "run", *job, inline_session, copied)
    assert list((tmp_path / "killed").glob(".clients.parquet.*"))
    assert reopened(tmp_path / "killed", job, leaving.snapshot).left() == undisturbed
    assert not list((tmp_path / "killed").glob(".clients.parquet.*"))


def test_rounds_that_the_state_has_seen_are_dropped_where_the_snapshot_is_older(
    job: tuple[RunPlan, FlatModel], undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    leaving = Leaving(snapshot_after=2, state_after=5, leave_after=6)
    with pytest.raises(LeftError):
        followed(tmp_path / "run", *job, inline_session, leaving)
    settled: list[int] = []
    again = followed(
        tmp_path / "run", *job, inline_session, lambda run, session, event: settled.append(event.round),
        read_state(tmp_path / "run"), leaving.snapshot,
    )  # fmt: skip
    assert settled == list(range(6, ROUNDS + 1))
    assert again.left() == undisturbed


@pytest.fixture(scope="module")
def once_left(job: tuple[RunPlan, FlatModel], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder, leaving = tmp_path_factory.mktemp("left") / "run", Leaving(4, 4, 4)
    with pytest.raises(LeftError):
        followed(folder, *job, inline_session, leaving)
    return folder, leaving.snapshot


@pytest.fixture
def left(once_left: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Any]:
    """The folder of a run that was left after round 4, and its snapshot."""
    folder, snapshot = once_left
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run", snapshot


def test_seconds_go_on_from_what_the_run_had_taken(job: tuple[RunPlan, FlatModel], left: tuple[Path, Any]) -> None:
    folder, snapshot = left
    state = read_state(folder) | {"seconds": 5000.0}
    followed(folder, *job, inline_session, state=state, snapshot=snapshot)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["seconds"] >= 5000.0 for row in rows] == [row["round"] > 4 for row in rows]


def test_a_snapshot_of_a_later_round_than_the_state_is_rejected(job: tuple[RunPlan, FlatModel], tmp_path: Path) -> None:
    leaving = Leaving(snapshot_after=2, state_after=1, leave_after=2)
    with pytest.raises(LeftError):
        followed(tmp_path / "run", *job, inline_session, leaving)
    with pytest.raises(ResourceError, match=r"would continue after round 2, but the state .* ends with round 1"):
        reopened(tmp_path / "run", job, leaving.snapshot)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("metrics.jsonl", "has fewer than the 2 lines"), ("clients.parquet", r"is missing, with \d+ rows")],
)
def test_records_that_are_gone_are_named(
    name: str, complaint: str, job: tuple[RunPlan, FlatModel], left: tuple[Path, Any]
) -> None:
    folder, snapshot = left
    (folder / name).unlink()
    with pytest.raises(ResourceError, match=rf"{name}' {complaint}"):
        reopened(folder, job, snapshot)


def test_a_callbacks_state_needs_its_callback(job: tuple[RunPlan, FlatModel], left: tuple[Path, Any]) -> None:
    folder, _ = left
    with (
        Records(folder, reopened=True) as records,
        pytest.raises(Exception, match=r"^callback 'memory' has followed this run so far and stored a state"),
    ):
        Run(*job, records, [], Console(quiet=True), read_state(folder))


def test_the_state_of_a_callback_that_the_scenario_named_is_dropped_with_it(tmp_path: Path) -> None:
    stopping = {"name": "early_stopping", "patience": 1, "min_delta": 1.0}
    scenario = tables(phases=[PLAIN | {"rounds": 6}], checkpoint={"rounds": 1}, callbacks=[stopping])
    folder = rayfl.run(scenario, folder=tmp_path / "run", backend="inline", quiet=True).directory
    stopped = RunArchive(folder).rows[-1]["round"]
    assert stopped < 6
    with pytest.raises(
        ResourceError, match=r"by early_stopping, which would stop it again; change it, or leave it out"
    ):
        rayfl.run(resume=folder, backend="inline", quiet=True)
    rayfl.run(resume=folder, overrides={"callbacks": []}, backend="inline", quiet=True)
    assert RunArchive(folder).rows[-1]["round"] == 6


def test_the_state_of_a_round_survives_json_whatever_its_numbers() -> None:
    done = RoundDone(
        "p", 3, 2, math.inf, 4, 0, Traffic(1, 2, 3, 4, 5), 0.25, {"a": -math.inf, "b": 0.1},
        (ClientScalars(7, {"c": 1e-300}),), {7: {Mechanism(1.0, 0.5, "query"): 3}}, (1, 2),
    )  # fmt: skip
    assert round_from(json.loads(json.dumps(plain_round(done), allow_nan=False))) == done


@pytest.mark.parametrize("broken", ["session", "snapshot"])
def test_a_run_that_cannot_be_opened_again_says_so_and_not_that_it_has_no_model(
    broken: str, job: tuple[RunPlan, FlatModel], left: tuple[Path, Any]
) -> None:
    folder, snapshot = left

    def no_room(_: RunPlan) -> AbstractContextManager[BackendSession]:
        raise ResourceError("the cluster is full")

    snapshot = snapshot if broken == "session" else (snapshot[0], MemoryStore())
    with pytest.raises(RayflError) as caught:
        followed(
            folder, *job, no_room if broken == "session" else inline_session, state=read_state(folder),
            snapshot=snapshot,
        )  # fmt: skip
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("failed", str(caught.value).splitlines()[0])
    assert status["model_missing"] == "the run could not continue after round 4, so nothing new was saved"
