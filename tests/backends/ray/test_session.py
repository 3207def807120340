"""`rayfl.Session`: runs that follow each other on the same hosts, with the bits of runs by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

import rayfl
from rayfl.backends.ray.kept_cluster import KeptCluster
from rayfl.errors import ClientError, ScenarioError
from rayfl.runs.session import Session
from tests.callbacks.scene import PLAIN, STATEFUL, StopAt, figures, model_of, run, same, tables

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with rayfl.Session(out=tmp_path / "session", console=Console(quiet=True)) as opened:
        yield opened


def hosts_of(session: Session) -> list[Any]:
    kept = session._kept
    assert kept is not None
    actors = kept.actors._actors
    return [] if actors is None else [host.actor._actor_id for host in actors.hosts]


EVERYBODY: dict[str, Any] = {"phases.0.cohort": 12}


def with_lr(lr: float) -> dict[str, Any]:
    return tables(phases=[{**PLAIN, "local": {**PLAIN["local"], "lr": lr}}])


def test_runs_share_hosts_and_have_the_bits_of_runs_by_themselves(session: Session, tmp_path: Path) -> None:
    scenarios = [with_lr(0.1), with_lr(0.3), tables(), tables(phases=[STATEFUL]), with_lr(0.1)]
    hosts = set()
    for number, scenario in enumerate(scenarios):
        ours = session.run(scenario)
        hosts.add(tuple(hosts_of(session)))
        alone = rayfl.run(scenario, backend="inline", out=tmp_path / str(number), console=Console(quiet=True))
        assert same(model_of(ours), model_of(alone))
        assert figures(ours) == figures(alone)
    assert len(hosts) == 1
    assert len(next(iter(hosts))) == 2


def open_sockets_and_threads() -> tuple[int, int]:
    sockets = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_socket()]
    return len(sockets), threading.active_count()


def test_runs_on_a_cluster_of_the_program_leave_no_socket_and_no_thread(tmp_path: Path) -> None:
    counts = []
    for _ in range(6):
        rayfl.run(with_lr(0.1), out=tmp_path, console=Console(quiet=True))
        counts.append(open_sockets_and_threads())
    sockets, threads = zip(*counts, strict=True)
    assert sockets[-1] - sockets[0] < 5, "Ray closes those to the processes of a run a little later"
    assert threads[-1] <= threads[0]


def test_other_data_and_another_network_are_no_reason_for_other_hosts(session: Session, tmp_path: Path) -> None:
    session.run(with_lr(0.1))
    before = hosts_of(session)
    other = with_lr(0.1) | {"data": {"name": "tests.algorithms.scene:people", "options": {"number": 8}}, "seed": 3}
    ours = session.run(other, overrides={"model.dropout": 0.0})
    assert hosts_of(session) == before
    alone = run(tmp_path / "alone", **other | {"model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.0}})
    assert same(model_of(ours), model_of(alone))


def test_other_resources_take_other_hosts_for_which_the_first_make_room(session: Session) -> None:
    session.run(with_lr(0.1))
    before = hosts_of(session)
    session.run(with_lr(0.1), overrides={"resources.hosts": 3})
    assert len(hosts_of(session)) == 3
    assert not set(before) & set(hosts_of(session))


def test_a_run_that_fails_leaves_nothing_to_the_next(session: Session, tmp_path: Path) -> None:
    session.run(with_lr(0.1))
    before = hosts_of(session)
    with pytest.raises(ScenarioError):
        session.run(with_lr(0.1), overrides={"phases.0.local.lr": -1})
    assert hosts_of(session) == before, "nothing had begun"
    with pytest.raises(ClientError, match="no such column"):
        session.run(with_lr(0.1), overrides=EVERYBODY | {"phases.0.algorithm": "tests.backends.ray.broken:Raising"})
    assert hosts_of(session) == []
    stopped = session.run(with_lr(0.1), callbacks=[StopAt(name="stop", round=2)])
    assert stopped.metrics["round"].to_pylist()[-1] == 2
    assert hosts_of(session) == []
    ours = session.run(with_lr(0.1))
    assert same(model_of(ours), model_of(run(tmp_path / "alone", **with_lr(0.1))))


def test_hosts_that_die_between_runs_are_replaced_or_restarted(session: Session, tmp_path: Path) -> None:
    session.run(with_lr(0.1))
    kept = session._kept
    assert isinstance(kept, KeptCluster)
    assert kept.actors._actors is not None
    before = hosts_of(session)
    ray.kill(kept.actors._actors.hosts[0].actor, no_restart=False)
    ours = session.run(with_lr(0.2))
    assert hosts_of(session) == before, "Ray restarted it, for the run that the server knows of"
    alone = model_of(run(tmp_path / "alone", **with_lr(0.2)))
    assert same(model_of(ours), alone)
    ray.kill(kept.actors._actors.hosts[1].actor)
    assert same(model_of(session.run(with_lr(0.2))), alone)
    assert hosts_of(session) != before


def test_a_host_that_dies_in_a_later_run_comes_back_to_that_run(session: Session, tmp_path: Path) -> None:
    (tmp_path / "died").touch()
    first = {
        "phases.0.algorithm": {"name": "tests.backends.ray.broken:Killed", "mark": str(tmp_path / "died")},
        **EVERYBODY,
    }
    session.run(with_lr(0.1), overrides=first)
    before = hosts_of(session)
    dies = first | {"phases.0.algorithm.mark": str(tmp_path / "dies"), "seed": 5}
    ours = session.run(with_lr(0.1), overrides=dies)
    assert (tmp_path / "dies").exists()
    assert hosts_of(session) == before
    alone = rayfl.run(
        with_lr(0.1),
        overrides=EVERYBODY | {"seed": 5},
        backend="inline",
        out=tmp_path / "alone",
        console=Console(quiet=True),
    )
    assert same(model_of(ours), model_of(alone))


def test_closing_ends_the_hosts_and_a_later_run_begins_anew(session: Session) -> None:
    session.run(with_lr(0.1))
    session.close()
    assert ray.is_initialized(), "the program's own connection stays"
    session.run(with_lr(0.1))
    assert len(hosts_of(session)) == 2
