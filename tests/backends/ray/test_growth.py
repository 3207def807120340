"""How hosts come to join a run, step by step; without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from rayfl.backends.ray.growth import Growth
from rayfl.errors import LostError


class Host:
    def __init__(self, number: int) -> None:
        self.number, self.ready = number, False
        self.error: Exception | None = None
        self.watched: bool | None = None

    def call(self, method: str, watched: bool) -> Host:
        assert method == "join"
        self.watched = watched
        return self  # its own reference


class Actors:
    """Two hosts, and those that arrive."""

    def __init__(self) -> None:
        self.hosts, self.newcomers, self.arriving = [Host(0), Host(1)], list[Host](), list[Host]()
        self.handed = list[tuple[list[int], list[str]]]()
        self.scheduler = SimpleNamespace(call=self.join)

    def join(self, method: str, hosts: list[Host], nodes: list[str]) -> None:
        assert method == "join"
        self.handed.append(([host.number for host in hosts], nodes))

    def arrive(self, *numbers: int) -> list[Host]:
        self.arriving += [Host(number) for number in numbers]
        return self.arriving

    def start_more(self) -> list[Host]:
        started, self.arriving = self.arriving, []
        self.newcomers += started
        return started

    def nodes(self) -> list[str]:
        return [f"node {host.number}" for host in [*self.hosts, *self.newcomers]]

    def admit(self, hosts: int) -> None:
        joined = hosts - len(self.hosts)
        self.hosts += self.newcomers[:joined]
        del self.newcomers[:joined]

    def dismiss(self, kept: int) -> None:
        del self.newcomers[kept:]


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    def wait(refs: list[Host], timeout: float) -> tuple[list[Host], list[Host]]:
        return [ref for ref in refs if ref.ready], [ref for ref in refs if not ref.ready]

    def get(ref: Host) -> dict[str, str]:
        if ref.error is not None:
            raise ref.error
        return {"host": str(ref.number)}

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    return Actors()


def growth_of(actors: Actors, log: list[str] | None = None) -> Growth:
    made: Any = actors
    written: Any = SimpleNamespace(write=([] if log is None else log).append)
    return Growth(made, written, lambda: 0.0)


def test_hosts_are_handed_over_in_the_order_of_their_numbers_once_they_have_started(actors: Actors) -> None:
    growth, (third, fourth) = growth_of(actors), actors.arrive(2, 3)
    growth.look()
    fourth.ready = True
    growth.look()
    assert actors.handed == [], "the third keeps its number"
    third.ready = True
    growth.look()
    growth.look()
    assert actors.handed == [([2, 3], ["node 2", "node 3"])]
    (fifth,) = actors.arrive(4)
    fifth.ready = True
    growth.look()
    assert actors.handed[1:] == [([4], ["node 4"])]
    assert growth.admit(4) == [{"host": "2"}, {"host": "3"}]
    assert growth.admit(5) == [{"host": "4"}]
    assert [host.number for host in actors.hosts] == [0, 1, 2, 3, 4]


def test_a_host_that_cannot_start_is_dismissed_with_those_behind_it_and_the_run_goes_on(actors: Actors) -> None:
    log = list[str]()
    growth, (third, fourth, fifth) = growth_of(actors, log), actors.arrive(2, 3, 4)
    third.ready = fourth.ready = fifth.ready = True
    fourth.error = LostError("worker 3 died")
    growth.look()
    assert actors.handed == [([2], ["node 2"])]
    assert [host.number for host in actors.newcomers] == [2]
    assert log == ["a worker that was to join could not start: worker 3 died"]


def test_newcomers_announce_their_clients_where_the_others_do(actors: Actors) -> None:
    growth = growth_of(actors)
    (third,) = actors.arrive(2)
    growth.look()
    growth.watched = True
    (fourth,) = actors.arrive(3)
    growth.look()
    assert (third.watched, fourth.watched) == (False, True)


def test_it_looks_every_few_seconds() -> None:
    now = [0.0]
    nobody: Any = None
    growth = Growth(nobody, nobody, lambda: now[0])
    assert not growth.is_due
    now[0] = 5.0
    assert growth.is_due
