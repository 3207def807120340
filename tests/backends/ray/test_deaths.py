"""Actors die in the middle of a run, and the run ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from ray._private.state import actors
from ray.exceptions import RayError
from rich.console import Console

import rayfl
from rayfl.backends.ray.failures import as_rayfl_error
from rayfl.backends.ray.host_actor import HostActor
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.engine.assignment import home
from rayfl.engine.events import Event, Recovering, RoundDone, SnapshotTaken
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import LostError, ResourceError
from rayfl.models.tensors import split
from tests.callbacks.scene import StopAt, figures, tables
from tests.engine.scenes import prepared, run_on_hosts
from tests.runs.lifecycle.scene import ROUNDS, SCENE, Memory

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1}
STATEFUL: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": "tests.algorithms.scene:TanhNet",
    "phases": [
        {"name": "cyclic", "schedule": "relay", "rounds": 2, "cohort": 3, "local": LOCAL},
        {"name": "scaffold", "rounds": 30, "cohort": 5, "algorithm": "scaffold", "local": LOCAL},
    ],
    "evaluation": {"every": 2},
}
CLASSES = {"host": "HostActor", "server": "ServerActor", "scheduler": "SchedulerActor"}


def living(kind: str, actor: Any = None) -> Any:
    """What Ray knows of one living actor of a kind, or of this one."""
    known = actors().items()
    return next(
        told
        for id, told in known
        if told["State"] == "ALIVE"
        and told["ActorClassName"] == CLASSES[kind]
        and (actor is None or id == actor._actor_id.hex())
    )


def kill(kind: str, actor: Any = None) -> None:
    os.kill(living(kind, actor)["Pid"], signal.SIGKILL)


def actors_of(session: Any) -> list[str]:
    return [actor.actor._actor_id.hex() for actor in session._attempt.actors.all]


def followed(session: Any, victim: str, after: int, snapshots: bool) -> Iterator[Event]:
    """Kills after a round, and not before a snapshot was reported, where there are any."""
    taken = not snapshots
    for event in session.events():
        yield event
        taken = taken or isinstance(event, SnapshotTaken)
        if isinstance(event, RoundDone) and event.round >= after and taken and victim:
            kill(victim)
            victim = ""


def struck(job: RunPlan, folder: Path, strike: Callable[[Any], None]) -> tuple[np.ndarray, list[Event]]:
    """The final model and the events of a run whose attempt is struck at its first snapshot."""
    events: list[Event] = []
    with ray_session(job, None, RayLog(folder / "ray.log")) as session:
        session.checkpoint_to(FolderStore(folder / "states"))
        for event in session.events():
            if isinstance(event, SnapshotTaken) and not any(isinstance(each, SnapshotTaken) for each in events):
                strike(session._attempt)  # type: ignore[attr-defined]
            events.append(event)
        round, model = session.committed()
    assert round == sum(phase.rounds for phase in job.scenario.phases)
    return split(model)[0], events


@pytest.mark.parametrize("snapshots", [True, False], ids=["from a snapshot", "from the beginning"])
@pytest.mark.parametrize("victim", ["host", "server", "scheduler"])
def test_a_stateful_run_goes_on_when_an_actor_dies(victim: str, snapshots: bool, tmp_path: Path) -> None:
    job = prepared(**STATEFUL, checkpoint={"rounds": 1}, resources={"hosts": 2})
    expected, _ = run_on_hosts(prepared(**STATEFUL), 1)
    with ray_session(job, None, RayLog(tmp_path / "ray.log")) as session:
        if snapshots:
            session.checkpoint_to(FolderStore(tmp_path / "states"))
        before = actors_of(session)
        events = list(followed(session, victim, 5, snapshots))
        round, model = session.committed()
        assert (actors_of(session) == before) == (victim == "host"), "Ray restarts it, and nothing else is"
    assert round == 32
    assert np.array_equal(split(model)[0], expected)
    (recovering,) = [event for event in events if isinstance(event, Recovering)]
    assert "died" in recovering.reason or "lost" in recovering.reason
    assert (recovering.round > 0) == snapshots
    seconds = [event.seconds for event in events if isinstance(event, RoundDone)]
    assert seconds == sorted(seconds)


def test_the_next_snapshot_notices_a_host_that_died_idle(tmp_path: Path) -> None:
    """It starts again while the others go on, and is asked for its clients' states before it is asked to train them."""
    here, elsewhere = ([client for client in range(8) if home(client, 2) == host] for host in (0, 1))
    cohorts = [[*here, *elsewhere], *[elsewhere] * 15, here]
    rests = {"name": "rests", "rounds": len(cohorts), "cohort": {"explicit": cohorts}, "algorithm": "scaffold"}
    scenario = STATEFUL | {"phases": [rests | {"local": LOCAL | {"epochs": 150}}], "evaluation": {"every": 100}}
    expected, _ = run_on_hosts(prepared(**scenario), 1)
    job = prepared(**scenario, checkpoint={"rounds": 1}, resources={"hosts": 2})
    model, events = struck(job, tmp_path, lambda attempt: kill("host", attempt.actors.hosts[0].actor))
    assert np.array_equal(model, expected)
    assert any("is lost" in event.reason for event in events if isinstance(event, Recovering))


@pytest.mark.parametrize("victim", ["server", "host"])
def test_an_asynchronous_run_goes_on_with_updates_in_flight_when_an_actor_dies(victim: str, tmp_path: Path) -> None:
    """Every answer is a step, so that hosts run several of them ahead; what a host had begun, Ray repeats."""
    phase = {"name": "mixed", "schedule": "asynchronous", "rounds": 30, "concurrency": 5, "local": LOCAL}
    scenario = STATEFUL | {"phases": [phase], "participation": {"steps_per_s": {"lognormal": [1.0, 1.0]}}}
    expected, _ = run_on_hosts(prepared(**scenario), 1)
    job = prepared(**scenario, checkpoint={"rounds": 1}, resources={"hosts": 2})
    model, events = struck(job, tmp_path, lambda attempt: kill(victim))
    assert np.array_equal(model, expected)
    recoveries = [event for event in events if isinstance(event, Recovering)]
    assert [recovering.round > 0 for recovering in recoveries] == [True] * (victim == "server")


class Kills(Callback):
    """Kills one actor of a kind after each of some rounds."""

    victims: dict[int, str]

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if victim := self.victims.get(run.round.round):
            kill(victim)


def test_a_follower_of_a_run_sees_every_round_once(tmp_path: Path) -> None:
    """The server dies after the last round: its model is computed again on request."""
    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 2}}
    quiet, remembers = Console(quiet=True), [Memory(name="memory")]
    undisturbed = rayfl.run(
        scene, backend="inline", folder=tmp_path / "undisturbed", callbacks=remembers, console=quiet
    )
    victims = {3: "server", 4: "host", 7: "scheduler", ROUNDS: "server"}
    kills, memory = Kills(name="kills", victims=victims), Memory(name="memory")
    result = rayfl.run(scene, folder=tmp_path / "run", callbacks=[memory, kills], console=quiet)
    assert all(torch.equal(result.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    assert figures(result) == figures(undisturbed)
    assert [entry[1] for entry in memory.seen() if entry[0] == "round"] == list(range(1, ROUNDS + 1))
    status = json.loads((result.directory / "status.json").read_text())
    assert (status["status"], status["recoveries"]) == ("finished", len(victims))


def test_a_run_that_a_callback_stops_ends_there_even_if_something_dies_just_then(tmp_path: Path) -> None:
    class Both(Kills):
        def on_round(self, run: RunSoFar) -> None:
            super().on_round(run)
            assert run.round is not None
            if run.round.round == 4:
                run.stop("enough")

    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 1}}
    both = Both(name="both", victims={4: "scheduler"})
    result = rayfl.run(scene, folder=tmp_path, callbacks=[both], console=Console(quiet=True))
    assert result.metrics["round"].to_pylist()[-1] == 4


@pytest.mark.parametrize("victim", ["scheduler", "server"])
def test_a_request_to_stop_outlives_the_scheduler_and_ends_a_later_round_than_all_reported_ones(
    victim: str, tmp_path: Path
) -> None:
    class Both(Kills):
        settles = False

        def on_round(self, run: RunSoFar) -> None:
            assert run.round is not None
            if run.round.round == 4:
                run.stop("enough")
            super().on_round(run)

    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 2}}
    both = Both(name="both", victims={4: victim})
    result = rayfl.run(scene, folder=tmp_path / "run", callbacks=[both], console=Console(quiet=True))
    status = json.loads((result.directory / "status.json").read_text())
    last = status["stopped"]["round"]
    assert 4 < last < ROUNDS
    assert status["recoveries"] >= 1
    expected = rayfl.run(
        scene, backend="inline", folder=tmp_path / "inline", callbacks=[StopAt(round=last)], console=Console(quiet=True)
    )
    assert all(torch.equal(result.state_dict[name], value) for name, value in expected.state_dict.items())
    assert figures(result) == figures(expected)


def test_a_run_that_gets_no_further_ends_with_the_model_of_its_last_snapshot(tmp_path: Path) -> None:
    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 1}, "resources": {"hosts": 1, "restarts": 0}}
    kills = Kills(name="kills", victims={4: "server"})
    with pytest.raises(LostError, match=r"the server died: .*the run does not try again \(resources.restarts is 0"):
        rayfl.run(scene, folder=tmp_path, callbacks=[kills], console=Console(quiet=True))
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["status"] == "failed"
    assert 0 < status["model"]["round"] < 4
    resumed = rayfl.run(resume=tmp_path, backend="inline", console=Console(quiet=True))
    undisturbed = rayfl.run(scene, backend="inline", folder=tmp_path / "undisturbed", console=Console(quiet=True))
    assert all(torch.equal(resumed.state_dict[name], value) for name, value in undisturbed.state_dict.items())


@pytest.mark.parametrize("victim", ["host", "scheduler", "server"])
def test_an_unresponsive_actor_is_replaced(victim: str, tmp_path: Path) -> None:
    """It is stopped, not killed: only its silence tells."""
    stopped = list[int]()

    class Stops(Callback):
        def on_evaluation(self, run: RunSoFar) -> None:
            assert run.round is not None
            if run.round.round == 4:
                stopped.append(living(victim)["Pid"])
                os.kill(stopped[0], signal.SIGSTOP)

    resources = {"hosts": 2, "watchdog_s": 2}
    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 1}, "resources": resources}
    undisturbed = rayfl.run(scene, backend="inline", folder=tmp_path / "undisturbed", console=Console(quiet=True))
    with (tmp_path / "output").open("w") as output:
        stops = Stops(name="stops")
        result = rayfl.run(scene, folder=tmp_path / "run", callbacks=[stops], console=Console(file=output, width=1000))
    assert all(torch.equal(result.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    said, named = (tmp_path / "output").read_text(), {"host": r"worker \d"}.get(victim, victim)
    assert re.search(rf"warning: no answer for \d+ s in stateful \d/4; still waiting for .*{named}", said)
    (recovered,) = (line for line in said.splitlines() if "the run continues" in line)
    assert re.search(r"for \d+ s, and the limit is \d+ s", recovered)
    assert re.search(named, recovered)
    assert json.loads((result.directory / "status.json").read_text())["recoveries"] == 1
    with suppress(psutil.NoSuchProcess):
        psutil.Process(stopped[0]).wait(timeout=10)  # if it outlived the run, this would raise


@pytest.mark.parametrize("algorithm", ["Exiting", "ExitingStateful"])
def test_a_client_that_kills_its_host_every_time_is_named(algorithm: str, tmp_path: Path) -> None:
    phase = {"name": "p", "rounds": 3, "cohort": {"explicit": [[1, 2], [3, 5], [4, 6]]}, "local": LOCAL}
    phase |= {"algorithm": f"tests.backends.ray.broken:{algorithm}"}
    job = prepared(**STATEFUL | {"phases": [phase]}, checkpoint={"rounds": 1}, resources={"hosts": 1})
    with ray_session(job, None, RayLog(tmp_path / "ray.log")) as session:
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        with pytest.raises(ResourceError, match=r"client 5 killed its worker process 3 times .*lower local.batch_size"):
            list(session.events())


def test_a_host_that_is_started_again_is_counted(tmp_path: Path) -> None:
    """Where hosts keep nothing, Ray repeats their updates, and no other process needs to do anything."""
    scene: dict[str, Any] = tables(phases=[{"name": "plain", "rounds": 400, "cohort": 5, "local": LOCAL}])
    kills = Kills(name="kills", victims={3: "host"})
    with (tmp_path / "output").open("w") as output:
        console = Console(file=output, width=1000)
        result = rayfl.run(scene, folder=tmp_path / "run", callbacks=[kills], console=console)
    assert re.search(r"warning: worker \d died and was restarted", (tmp_path / "output").read_text())
    assert json.loads((result.directory / "status.json").read_text())["recoveries"] == 1


def test_a_host_that_starts_again_when_the_server_is_dead_says_so() -> None:
    """It asks the server for the run, and tells it of the death; neither may keep the run from going on."""
    actor: Any = ray.remote(HostActor).options(num_cpus=0, max_restarts=1, max_task_retries=1)
    host = actor.remote(0, "nobody's name")
    ray.get(host.open.remote())  # one that starts again does so by itself
    for _ in range(2):
        with pytest.raises(RayError) as caught:
            ray.get(host.describe.remote())
        assert isinstance(told := as_rayfl_error(caught.value, {}), LostError)
        assert "worker 0 could not start on node" in str(told)
        assert "the server died" in str(told)
        ray.kill(host, no_restart=False)
