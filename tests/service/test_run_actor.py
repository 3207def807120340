"""How a submitted run's actor ends, without a cluster."""

from __future__ import annotations

import json
import pickle
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle

import rayfl.runs.launch
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError
from rayfl.interruption import StopRequested
from rayfl.runs.options import RunOptions
from rayfl.runs.run_lock import HeldError
from rayfl.runs.status import read_status
from rayfl.service.run_actor import LOG, RunActor, Submission
from tests.callbacks.scene import PLAIN, run, tables


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The actors that were killed; there is no cluster."""
    actors: list[Any] = []
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None, was_current_actor_reconstructed=False)
    )
    monkeypatch.setattr(ray, "kill", actors.append)
    return actors


def actor_of(folder: Path, **options: Any) -> RunActor:
    given = RunOptions(data_dir=folder, starts=folder, **options)
    submission = Submission(Scenario.from_tables(tables(phases=[PLAIN])), folder, given, pickle.dumps({}))
    return RunActor(*submission.packed())


def ended(folder: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch, killed: list[Any]) -> str:
    """What the log says after a run that failed with an error before it wrote records."""

    def launch_run(*_: Any) -> None:
        raise error

    monkeypatch.setattr(rayfl.runs.launch, "launch_run", launch_run)
    actor = actor_of(folder)
    actor._run(None)
    assert actor.ended(0.0)
    assert killed == [None]
    return (folder / LOG).read_text()


def test_a_run_that_fails_beside_a_damaged_status_says_why_and_writes_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    (tmp_path / "status.json").write_text("{")
    assert ended(tmp_path, ResourceError("left on purpose"), monkeypatch, killed) == "error: left on purpose\n"
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("failed", "left on purpose")


def test_a_run_whose_folder_another_holds_leaves_its_records_alone_even_damaged_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    (tmp_path / "status.json").write_text("{")
    assert ended(tmp_path, HeldError("another works there"), monkeypatch, killed) == "error: another works there\n"
    assert (tmp_path / "status.json").read_text() == "{"


def test_a_run_that_is_stopped_while_it_waits_says_so_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    assert ended(tmp_path, StopRequested(), monkeypatch, killed) == "stopped before its first round\n"
    assert json.loads((tmp_path / "status.json").read_text())["status"] == "interrupted"


class Silent(Callback):
    """Asks for the end of the run during its second round."""

    _ask: Any = None

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == 2:
            self._ask()


class Reporting(Silent):
    """Needs no settled rounds."""

    settles = False


@pytest.mark.parametrize("kind", [Silent, Reporting])
def test_a_request_ends_a_run_after_the_current_round_whether_rounds_settle_or_not(
    kind: type[Silent], tmp_path: Path, killed: list[Any]
) -> None:
    actor = actor_of(tmp_path / "run", backend="inline", callbacks=[kind()])
    callback: Any = actor._submission.options.callbacks[0]
    callback._ask = actor.stop
    actor._run(None)
    assert "stopped after round 2 by handle.stop(): asked to stop" in (tmp_path / "run" / LOG).read_text()
    status = actor.status()
    assert status is not None
    assert (status["status"], status["committed_rounds"]) == ("finished", 2)
    assert status["stopped"] == {"callback": "handle.stop()", "reason": "asked to stop", "round": 2}
    shorter = run(tmp_path, phases=[PLAIN | {"rounds": 2}])
    assert actor.metrics().drop_columns("seconds").equals(shorter.metrics.drop_columns("seconds"))


def test_a_request_before_the_first_round_ends_the_run_after_it(tmp_path: Path, killed: list[Any]) -> None:
    actor = actor_of(tmp_path / "run", backend="inline")
    actor.stop()
    actor._run(None)
    status = actor.status()
    assert status is not None
    assert (status["status"], status["stopped"]["round"]) == ("finished", 1)


def test_a_large_submission_is_sent_in_pieces_that_ray_keeps_and_arrives_whole(
    tmp_path: Path, killed: list[Any]
) -> None:
    scenario, content = Scenario.from_tables(tables(phases=[PLAIN])), bytes(range(256)) * 2**10
    packed = Submission(scenario, tmp_path, RunOptions(), content, 3, 5.0).packed()
    assert len(packed) >= 4
    assert max(map(len, packed)) < 100 * 1024, "Ray's limit on arguments that go along with a call"
    assert cloudpickle.loads(b"".join(packed)).main_objects == content


def test_a_restarted_process_prepares_a_run_whose_status_is_that_of_the_process_before(
    tmp_path: Path, killed: list[Any]
) -> None:
    process = {"host": platform.node(), "pid": 2**22 + 1, "began": 0.0}
    status = {"status": "running", "reason": None, "process": process}
    (tmp_path / "status.json").write_text(json.dumps(status))
    recorded = read_status(tmp_path)
    assert recorded is not None
    assert recorded["status"] == "lost"
    assert actor_of(tmp_path).status() is None


class Others:
    """Active runs of a cluster that does not exist, by name, with their answers about whether they wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: dict[str, Any]) -> None:
        def actor(name: str, namespace: str) -> Any:
            if runs[name] is LookupError:
                raise ValueError(name)
            return SimpleNamespace(waits=SimpleNamespace(remote=lambda: runs[name]))

        monkeypatch.setattr("rayfl.service.run_actor.names_of_runs", lambda: sorted(runs))
        monkeypatch.setattr(ray, "get_actor", actor)
        monkeypatch.setattr(ray, "get", lambda answer: answer)


def test_waiting_runs_take_turns_by_priority_and_then_first_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    scenario = Scenario.from_tables(tables(phases=[PLAIN]))
    options = RunOptions(data_dir=tmp_path, starts=tmp_path)
    actors = [
        RunActor(*Submission(scenario, tmp_path / name, options, pickle.dumps({}), priority, submitted).packed())
        for name, priority, submitted in (("late", 0, 30.0), ("urgent", 5, 40.0), ("early", 0, 10.0), ("runs", 9, 5.0))
    ]
    for name, status in (("late", "waiting"), ("urgent", "waiting"), ("early", "waiting"), ("runs", "running")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text(json.dumps({"status": status}))
    answers = {actor.folder().name: actor.waits() for actor in actors}
    assert answers["runs"] is None
    Others(monkeypatch, answers | {"gone": LookupError})
    assert [actor._ahead() for actor in actors] == [2, 0, 1, 0]


def test_a_run_with_a_range_of_workers_waits_in_ray_and_has_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    scenario = Scenario.from_tables(tables(phases=[PLAIN], resources={"hosts": {"max": 4}}))
    (tmp_path / "status.json").write_text(json.dumps({"status": "waiting"}))
    options = RunOptions(data_dir=tmp_path, starts=tmp_path)
    actor = RunActor(*Submission(scenario, tmp_path, options, pickle.dumps({})).packed())
    assert actor.waits() is None
    Others(monkeypatch, {"other": (-9, 0.0, "")})
    assert actor._ahead() == 0
