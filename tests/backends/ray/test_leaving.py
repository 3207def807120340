"""How a run goes on without hosts that are lost or leave, step by step; without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from rayfl.backends.ray import attempt as attempts
from rayfl.backends.ray.attempt import Deaths
from rayfl.backends.ray.placement import Reservation
from rayfl.backends.ray.session import RaySession
from rayfl.config.execution import Resources
from rayfl.engine.events import Event, HostRestarted, HostsChanged, Recovering, RoundDone
from rayfl.engine.totals import Traffic
from rayfl.errors import LostError, StateLostError
from tests.engine.scenes import TINY, prepared


def done(round: int) -> RoundDone:
    return RoundDone("cyclic", round, round, 0.0, 1, 1, Traffic(), 0.0)


class Scene:
    """A run's attempts, each with the numbers of its hosts and what it reports: events, a loss, or its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *attempts: tuple[int, list[Event | LostError | None]]) -> None:
        self.attempts, self.said = list(attempts), list[str]()
        self.leaving, self.restarted = list[int](), list[HostRestarted]()
        self.goes_on = True
        monkeypatch.setattr("rayfl.backends.ray.session.Attempt", self.attempt)
        monkeypatch.setattr("rayfl.backends.ray.session.time.sleep", lambda seconds: None)
        kept: Any = SimpleNamespace(discard=lambda: self.said.append("discard"), holds=lambda actors: True)
        log: Any = None
        self.session = RaySession(prepared(**TINY, resources={"hosts": {"min": 1, "max": 3}}), kept, log)

    def attempt(self, *_: Any, **__: Any) -> Any:
        hosts, reports = self.attempts.pop(0)
        self.restarted = []  # each attempt has its own `Deaths`

        def following() -> Event | None:
            report = reports.pop(0)
            if isinstance(report, LostError):
                raise report
            return report

        return SimpleNamespace(
            hosts=[{"host": str(number)} for number in range(hosts)],
            next=following,
            goes_on=lambda: self.goes_on,
            has_begun=True,
            committed=lambda last: (2, None),
            suspect=lambda deaths: None,
            tell=lambda method, *arguments: self.said.append(method),
            post=lambda method: self.said.append(f"post {method}"),
            head=SimpleNamespace(is_there=lambda: True),
            growth=SimpleNamespace(is_due=True, look=lambda: None),
            actors=SimpleNamespace(
                reservation=None, lose=lambda numbers: self.said.append(f"lose {', '.join(map(str, numbers))}")
            ),
            deaths=SimpleNamespace(
                since=lambda event: (),
                unmissed=lambda: self.restarted,
                without_node=set(),
                in_updates=dict,
                to_leave=lambda: self.leaving,
            ),
        )

    def events(self) -> list[Event]:
        return list(self.session.events())


DIED = "worker 2 died"


def test_a_run_that_loses_a_host_goes_on_with_the_actors_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, (3, [done(1), LostError(DIED)]), (2, [done(1), done(2), None]))
    events = scene.events()
    assert [type(event) for event in events] == [RoundDone, Recovering, HostsChanged, RoundDone, RoundDone]
    assert events[2] == HostsChanged("cyclic", 0, 3, 2)
    assert "discard" not in scene.said
    assert len(scene.session.hosts) == 2


def test_a_run_that_loses_more_than_hosts_begins_again_on_new_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, (3, [LostError("the server died")]), (3, [done(1), done(2), None]))
    scene.goes_on = False
    assert [type(event) for event in scene.events()] == [Recovering, RoundDone, RoundDone]
    assert scene.said == ["discard"]


def test_hosts_leave_a_node_that_is_about_to_go_after_a_pause_and_count_as_no_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, (3, [done(1), None]), (2, [done(2), None]))
    store: Any = None
    scene.session.checkpoint_to(store)
    scene.leaving = [1]
    events = scene.session.events()
    assert next(events) == done(1)
    assert next(events) == HostsChanged("cyclic", 0, 3, 2)
    scene.leaving = []
    assert [type(event) for event in events] == [RoundDone]
    assert scene.said == ["checkpoint_to", "post interrupt", "lose 1", "checkpoint_to"]


@pytest.mark.parametrize(("leaving", "snapshots"), [([0, 1, 2], True), ([1], False)], ids=["all", "no snapshots"])
def test_hosts_stay_where_the_others_could_not_go_on_without_a_repeat(
    leaving: list[int], snapshots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(monkeypatch, (3, [done(1), done(2), None]))
    scene.leaving = leaving
    store: Any = None
    if snapshots:
        scene.session.checkpoint_to(store)
    assert [type(event) for event in scene.events()] == [RoundDone, RoundDone]
    assert "post interrupt" not in scene.said


def test_a_run_that_is_interrupted_while_hosts_leave_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, (3, [done(1), None]))
    store: Any = None
    scene.session.checkpoint_to(store)
    scene.leaving = [1]
    for event in scene.session.events():
        assert isinstance(event, RoundDone)
        scene.session.interrupt()
    assert "lose 1" not in scene.said


class Group:
    def __init__(self, name: str) -> None:
        self.name, self.id = name, SimpleNamespace(hex=lambda: name)

    def ready(self) -> None:
        """The test says whether it is."""


class Groups:
    """Ray's placement groups, whose bundles a test puts on nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = dict[str, dict[str, Any]]()
        self.nodes, self.draining = {"a", "b"}, set[str]()
        monkeypatch.setattr(Reservation, "_group", self.group)
        monkeypatch.setattr("rayfl.backends.ray.placement.placement_group_table", lambda: self.table)
        monkeypatch.setattr("rayfl.backends.ray.placement.remove_placement_group", self.remove)
        monkeypatch.setattr("rayfl.backends.ray.placement.draining_nodes", lambda: self.draining)
        monkeypatch.setattr(ray, "available_resources", dict)
        monkeypatch.setattr(ray, "get", lambda ref, timeout: None)
        monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": node, "Alive": True} for node in self.nodes])

    def group(self, hosts: int) -> Any:
        name = str(len(self.table))
        self.table[name] = {"state": "PENDING", "bundles_to_node_id": dict.fromkeys(range(hosts), "")}
        return Group(name)

    def remove(self, group: Any) -> None:
        del self.table[group.name]

    def put(self, name: int, *nodes: str, state: str = "CREATED") -> None:
        self.table[str(name)] = {"state": state, "bundles_to_node_id": dict(enumerate(nodes))}


def test_the_place_of_a_host_that_is_lost_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, reservation = Groups(monkeypatch), Reservation(Resources())
    reservation.take(2)
    groups.put(0, "a", "b")
    _, lost = reservation.places
    groups.nodes = {"a"}
    groups.put(0, "a", "", state="RESCHEDULING")
    reservation.lose([lost])
    assert (len(reservation.places), reservation.wanted) == (1, 2)
    reservation.request(2)
    assert reservation.arrived() == []
    groups.nodes = {"a", "c"}
    groups.put(0, "a", "c")
    assert reservation.arrived() == [lost]
    assert len(groups.table) == 1, "no other group was requested"


def test_a_place_on_a_node_that_is_about_to_go_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, reservation = Groups(monkeypatch), Reservation(Resources())
    reservation.request(1)
    groups.put(0, "a")
    (place,) = reservation.arrived()
    groups.draining = {"a"}
    reservation.lose([place])
    assert reservation.arrived() == []
    groups.put(0, "b")
    assert reservation.arrived() == [place]


def test_a_group_is_given_back_with_its_last_place(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, reservation = Groups(monkeypatch), Reservation(Resources())
    reservation.take(2)
    groups.put(0, "a", "b")
    first, second = reservation.places
    reservation.lose([second])
    reservation.request(1)
    assert groups.table.keys() == {"0"}, "the first host needs it"
    reservation.give_back([first])
    assert groups.table == {}


@pytest.mark.parametrize("with_states", [(), ("later",), ("cyclic", "later")])
def test_a_restarted_host_that_may_have_kept_states_is_reported_at_the_end(
    with_states: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a recovery may report the same death."""
    now, counts = [0.0], {"x": 0, "y": 3}
    monkeypatch.setattr(attempts, "restarts", lambda actor: counts[actor])
    actors: Any = SimpleNamespace(hosts=[SimpleNamespace(actor=name) for name in counts])
    head: Any = SimpleNamespace(is_there=lambda: True)
    deaths = Deaths(actors, head, lambda: now[0], with_states)
    counts["y"] += 1
    now[0] += attempts.ASKS_EVERY_S
    (restarted,) = expected = [HostRestarted("cyclic", 7, host=1, times=4)]
    is_held = restarted.phase in with_states
    assert list(deaths.since(done(7))) == ([] if is_held else expected)
    now[0] += attempts.ASKS_EVERY_S
    assert list(deaths.since(done(7))) == []
    assert list(deaths.unmissed()) == (expected if is_held else [])
    assert list(deaths.unmissed()) == []


@pytest.mark.parametrize("ending", [None, LostError("the server died"), StateLostError("no longer has it")])
def test_a_death_is_reported_once(ending: LostError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is restarted after the first round: the loss of a state reports it, and of all else nothing does."""
    scene = Scene(monkeypatch, (2, [done(1), ending]), (2, [done(2), None]))
    scene.restarted = [HostRestarted("cyclic", 1, host=0, times=1)]
    kinds = [type(event) for event in scene.events()]
    assert kinds.count(Recovering) == (ending is not None)
    assert kinds.count(HostRestarted) == (not isinstance(ending, StateLostError))


def test_a_host_without_a_node_is_ended_at_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now, killed, nodes = [0.0], list[str](), ["a", ""]
    monkeypatch.setattr(attempts, "restarts", lambda actor: 0)
    monkeypatch.setattr(ray, "kill", killed.append)
    actors: Any = SimpleNamespace(hosts=[SimpleNamespace(actor=name) for name in "xy"], nodes=lambda: nodes)
    head: Any = SimpleNamespace(is_there=lambda: True)
    deaths = Deaths(actors, head, lambda: now[0])

    def look() -> list[str]:
        now[0] += attempts.ASKS_EVERY_S
        deaths.end_homeless()
        return killed

    assert look() == [], "Ray may find another node"
    nodes[1] = "b"
    assert look() == []
    nodes[1] = ""
    assert look() == []
    assert look() == ["y"]
    assert look() == ["y"]
    assert deaths.without_node == {1}
