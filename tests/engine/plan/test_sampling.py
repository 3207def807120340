"""Cohort samplers: what they see depends on committed rounds alone, and what they get wrong is named as theirs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.sampler import CohortSampler, HighestLossFirst, PowerOfChoice, SamplingContext
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.backends.inline import InlineBackend
from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Samples
from rayfl.engine.events import RoundDone
from rayfl.engine.host import Host
from rayfl.engine.plan import sampling
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.sampling import Sampling, population_of
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.models.tensors import split
from tests.algorithms.reference import PlainUpdate
from tests.algorithms.scene import PLAIN, SIZES, Setting, people, prepared
from tests.counting import Counted, touched_by
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, continued, run_on_hosts, snapshot_after, snapshot_of, without_clock

SEEN: list[dict[str, Any]] = []
"""What `Watching` saw, round by round, as plain values."""
COHORTS: list[list[int]] = []
"""The cohorts that the server was told of."""


class Noting(FedAvg):
    """Clients report their number; the server notes the cohort."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        COHORTS.append(list(context.cohort))
        yield from super().round(server, context)

    def client_update(self, client: ClientContext, model: Any) -> ClientUpdate[Answer]:
        client.report(number=client.id + 0.5)
        return (yield from super().client_update(client, model))


class Watching(CohortSampler):
    """Draws three clients, of which it takes another first one every round."""

    reads_scalars: ClassVar[bool] = True
    name: str = "watching"

    def draw(self, context: SamplingContext) -> Sequence[int]:
        scalars = {client: dict(values) for client, values in context.scalars.items()}
        SEEN.append({"round": context.round, "scalars": scalars, "state": dict(context.state)})
        context.state["drawn"] = [*context.state.get("drawn", []), context.round]
        first = (context.round_in_phase * 2) % len(context.sizes)
        others = [client for client in context.stream.permutation(len(context.sizes)).tolist() if client != first]
        return [first, *others[:2]]


class Blind(Watching):
    reads_scalars: ClassVar[bool] = False


def job(sampler: str, rounds: int = 5, **phase: Any) -> RunPlan:
    setting = Setting(PLAIN.cohorts, rounds, PLAIN.local)
    cohort = {"sampler": f"{__name__}:{sampler}" if sampler in globals() else sampler}
    phase = {"cohort": cohort | phase.pop("options", {}), **phase}
    return prepared(f"{__name__}:Noting", setting, phase)[0]


def run(job: RunPlan, hosts: int = 1, ahead: int = 0) -> tuple[np.ndarray, list[Any]]:
    """On a backend that submits rounds ahead, as Ray does."""
    SEEN.clear()
    COHORTS.clear()
    server = Server(job)
    backend = InlineBackend([Host(index, job) for index in range(hosts)], server)
    backend.rounds_ahead = ahead
    events = list(Scheduler(job, backend).run())
    return split(server.committed()[1])[0], events


def test_a_sampler_sees_what_clients_reported_last_in_all_rounds_before() -> None:
    _, events = run(job("Watching"), hosts=2)
    done = [event for event in events if isinstance(event, RoundDone)]
    known: dict[int, float] = {}
    for number, seen in enumerate(SEEN):
        assert seen["round"] == number + 1
        assert seen["state"] == ({"drawn": list(range(1, number + 1))} if number else {})
        assert COHORTS[number][0] == (number + 1) * 2
        losses = {client: values["train_loss"] for client, values in seen["scalars"].items()}
        assert {client: values["number"] for client, values in seen["scalars"].items()} == {c: c + 0.5 for c in losses}
        if number:  # what is new must be of the round before, whose mean over all steps is known
            cohort = COHORTS[number - 1]
            steps = [PlainUpdate(PLAIN, client, number).K for client in cohort]
            mean = sum(losses[client] * k for client, k in zip(cohort, steps, strict=True)) / sum(steps)
            assert mean == pytest.approx(done[number - 1].train_loss)
            known |= {client: losses[client] for client in cohort}
        assert losses == known
    assert len(SEEN) == len(COHORTS) == 5


@pytest.mark.parametrize("sampler", ["Watching", "Blind"])
def test_rounds_that_are_submitted_ahead_change_nothing(sampler: str) -> None:
    models, seen = [], []
    for hosts, ahead in ((1, 0), (2, 2)):
        model, _ = run(job(sampler), hosts, ahead)
        models.append(model)
        seen.append([*SEEN, *COHORTS])
    assert np.array_equal(models[0], models[1])
    assert seen[0] == seen[1]
    assert any(entry["scalars"] for entry in SEEN) == (sampler == "Watching")


def test_a_sampler_draws_for_a_relay_too() -> None:
    run(job("Watching", schedule="relay", algorithm="fedavg"), 2)
    assert SEEN[0]["scalars"] == {}
    assert all(len(entry["scalars"]) >= 3 for entry in SEEN[1:])


@pytest.mark.parametrize(("sampler", "round"), [("Watching", 3), ("Blind", 3)])
def test_a_snapshot_holds_what_later_cohorts_depend_on(sampler: str, round: int) -> None:
    whole_model, whole = run_on_hosts(job(sampler), 1)
    model, later = continued(job(sampler), *snapshot_after(job(sampler), round, 2), hosts=3)
    assert np.array_equal(model, whole_model)
    assert repr(without_clock(later)) == repr(without_clock(whole[len(whole) - len(later) :]))


def test_power_of_choice_takes_the_candidates_with_the_highest_losses() -> None:
    """All clients are candidates: first those that never took part, then by what they lost last."""
    run(job("power_of_choice", rounds=6, options={"clients": 4, "candidates": 12}))
    assert len({client for cohort in COHORTS[:3] for client in cohort}) == 12
    scheduler, _ = cast(job("power_of_choice", rounds=6, options={"clients": 4, "candidates": 12}), 1)
    for event in scheduler.run():
        if isinstance(event, RoundDone) and 3 <= event.round < 6:
            known = {
                client: values["train_loss"]
                for client, values in snapshot_of(scheduler, MemoryStore()).sampling.scalars.items()
            }
            assert set(COHORTS[event.round]) == set(sorted(known, key=lambda client: -known[client])[:4])


def test_power_of_choice_does_not_wait_for_clients_that_never_answer() -> None:
    sampler = PowerOfChoice(clients=2, candidates=4)
    losses: dict[int, dict[str, float]] = {}
    state: dict[str, Any] = {}
    answers = []
    for number in range(1, 13):
        stream = np.random.default_rng(number)
        chosen = sampler.draw(SamplingContext(number, number, np.ones(5), stream, losses, state))
        answers.append([client for client in chosen if client < 3])  # 3 and 4 are never there
        losses |= {client: {"train_loss": 1 / (number + client)} for client in answers[-1]}
    assert all(answers[2:]), answers
    assert {client for answer in answers for client in answer} == {0, 1, 2}
    assert state == {"silent": [3, 4]}


def test_power_of_choice_draws_candidates_by_size() -> None:
    """As many candidates as places: plain sampling by size, whatever the losses."""
    rounds = 120
    setting = Setting(PLAIN.cohorts, rounds, {"lr": 0.1, "steps": 1, "batch_size": 1})
    cohort = {"sampler": "power_of_choice", "clients": 1, "candidates": 1}
    run(prepared(f"{__name__}:Noting", setting, {"cohort": cohort})[0])
    counts = np.bincount([client for (client,) in COHORTS], minlength=len(SIZES))
    expected = np.array(SIZES) / sum(SIZES) * rounds
    chi_squared = float((np.square(counts - expected) / expected).sum())
    assert chi_squared < 31.3  # 0.999 of chi squared with 11 degrees of freedom


class Wrong(CohortSampler):
    name: str = "wrong"
    what: str

    def draw(self, context: SamplingContext) -> Any:
        if self.what == "raises":
            raise KeyError("no such client")
        if self.what == "state":
            context.state["stream"] = context.stream
            return [0]
        if self.what == "keys":
            context.state["times"] = {3: 1}
            return [3]
        if self.what == "sizes":
            context.sizes[0] = 1
        return {
            "unknown": [3, 12],
            "negative": np.array([-1]),
            "twice": [4, 2, 4],
            "nobody": [],
            "share": [0.5],
            "truth": [True],
            "number": 3,
        }[self.what]


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("unknown", "draw() for round 1 returned client 12; clients are 0 to 11"),
        ("negative", "draw() for round 1 returned client -1; clients are 0 to 11"),
        ("twice", "draw() for round 1 returned client 4 twice"),
        ("nobody", "draw() for round 1 returned no client; a round needs at least one"),
        ("share", "draw() for round 1 must return a list of client numbers; 0.5 is a float"),
        ("truth", "draw() for round 1 must return a list of client numbers; True is a bool"),
        ("number", "draw() for round 1 must return a list of client numbers, not a int"),
        ("raises", "draw() for round 1 raised KeyError: 'no such client'"),
        ("sizes", "draw() for round 1 raised ValueError: assignment destination is read-only"),
        ("keys", "its state after round 1 is not plain data: the key 3 must be text, not a int"),
        ("state", "its state after round 1 is not plain data: option 'stream' must be text, a number,"),
    ],
)
def test_mistakes_of_a_users_sampler_are_reported_as_theirs(what: str, complaint: str) -> None:
    with pytest.raises(RayflError) as caught:
        run(job("Wrong", options={"what": what}))
    assert str(caught.value).startswith(f"sampler '{__name__}:Wrong': {complaint}")


def test_checking_a_samplers_cohort_takes_work_in_proportion_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "int", Counted, raising=False)

    def work(clients: int) -> int:
        return touched_by(lambda: sampling._checked([Counted(client) for client in range(clients)], clients, "it"))

    assert work(600) < 3 * work(300)


@pytest.mark.parametrize(
    ("cohort", "complaint"),
    [
        ({"sampler": "power"}, ".federated.cohort.sampler: unknown sampler 'power'; did you mean 'power_of_choice'?"),
        ({"sampler": f"{__name__}:SEEN"}, f".federated.cohort.sampler: '{__name__}:SEEN' is not a class derived from"),
        ({"sampler": "power_of_choice"}, ".federated.cohort.clients: is missing"),
        (
            {"sampler": "power_of_choice", "clients": 3, "candidates": 13},
            ".federated.cohort: 'power_of_choice' needs clients <= candidates <= 12",
        ),
        (
            {"sampler": "power_of_choice", "clients": 3, "candidate": 4},
            ".federated.cohort.candidate: unknown key; did you mean 'candidates'?",
        ),
        ({"sampler": f"{__name__}:Watching", "name": "x"}, ".federated.cohort.name: is not an option; "),
        ({"sampler": 3}, ".federated.cohort: allowed are a number of clients (1, 2, ...), a share of them"),
    ],
)
def test_a_wrong_choice_of_sampler_is_found_before_anything_starts(cohort: Any, complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepared("fedavg", PLAIN, {"cohort": cohort})
    assert f"phases{complaint}" in str(caught.value)


def test_a_relay_without_repetition_would_change_the_draws_of_a_sampler() -> None:
    with pytest.raises(ScenarioError, match=r"phases.federated.order: 'no_repeat' would change the sampler's cohort"):
        job("Watching", schedule="relay", order="no_repeat", algorithm="fedavg")


def test_the_resolved_scenario_has_the_samplers_defaults_and_runs_again() -> None:
    first = job("power_of_choice", rounds=2, options={"clients": 2, "candidates": 5})
    tables = tomllib.loads(first.scenario.to_toml())
    assert tables["phases"][0]["cohort"] == {"sampler": "power_of_choice", "clients": 2, "candidates": 5}
    assert Scenario.from_tables(tables) == first.scenario


RELAY: dict[str, Any] = {"schedule": "relay", "algorithm": "fedavg"}
PEOPLE_LABELS = np.split(people().train.y, np.cumsum(SIZES)[:-1])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sampler", "keys"),
    [
        ("largest_first", [-size for size in SIZES]),
        ("by_label", [int(np.bincount(labels).argmax()) for labels in PEOPLE_LABELS]),
    ],
)
def test_an_order_keeps_the_clients_that_a_plain_number_draws_and_sorts_them(
    sampler: str, keys: list[int], reverse: bool
) -> None:
    plan = job(sampler, 20, options={"clients": 5, "reverse": reverse}, **RELAY)
    ordered, changed = Sampling(plan.scenario, plan.phases), 0
    for round in range(1, 21):
        index = RoundIndex(0, round, round)
        plain = prepared("fedavg", Setting(PLAIN.cohorts, 20, PLAIN.local), {"cohort": 5} | RELAY)[0]
        drawn = Sampling(plain.scenario, plain.phases).draw(index)
        cohort = ordered.draw(index)
        assert cohort == [drawn[place] for place in stably_sorted([keys[client] for client in drawn], reverse)]
        changed += cohort != drawn
    assert changed > 10


def stably_sorted(keys: list[int], reverse: bool) -> list[int]:
    """Positions by key, equal ones in their own order."""
    order: list[int] = np.argsort([-key if reverse else key for key in keys], kind="stable").tolist()
    return order


def test_new_clients_come_first_then_those_with_the_highest_loss() -> None:
    losses = {client: {"train_loss": loss} for client, loss in ((0, 1.0), (1, 3.0), (3, 2.0))}
    context = SamplingContext(2, 2, np.array(SIZES[:5]), np.random.default_rng(0), losses)
    cohort = HighestLossFirst(clients=5).draw(context)
    assert set(cohort[:2]) == {2, 4}
    assert cohort[2:] == [1, 3, 0]


@pytest.mark.parametrize("schedule", ["parallel", "local"])
def test_an_order_needs_clients_that_begin_one_after_another(schedule: str) -> None:
    with pytest.raises(
        ScenarioError, match=rf"cohort: 'largest_first' orders clients, who all begin at once in a {schedule}"
    ):
        job("largest_first", options={"clients": 3}, schedule=schedule, algorithm="fedavg")


def test_an_order_by_class_needs_classes() -> None:
    plan = job("by_label", options={"clients": 3}, **RELAY)
    store = plan.workloads[0].store
    targets = replace(store, train=Samples(store.train.x, store.train.y + 0.5))
    with pytest.raises(ScenarioError, match=r"^phases.federated.cohort: its sampler reads the clients' classes, and"):
        population_of(plan.phases[0], replace(plan.workloads[0], store=targets))
