"""The spending of rounds is booked once, and no client spends more than `local.dp.max_epsilon`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import BudgetSpent, Evaluated, Event, RoundDone
from rayfl.engine.host import Host
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.sample_accesses import PlannedUpdates
from rayfl.engine.privacy_budget import PrivacyBudget
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.totals import UpdateReport
from rayfl.errors import RayflError
from rayfl.local.spending import Mechanism, SpendingByClient
from rayfl.privacy.samples.accounting import Accountant
from rayfl.privacy.samples.calibration import with_noise
from rayfl.streams import stream
from tests.counting import Counted, touched_by
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, continued, run_on_hosts, snapshot_after, snapshot_of, without_clock
from tests.privacy.samples.scene import dp, job, phase, spent_in

BUDGET = 15.0
ACCOUNTANT = Accountant("rdp", 1e-5)


def budget(**options: Any) -> dict[str, Any]:
    return {"dp": dp(max_epsilon=BUDGET, accountant="rdp", **options)}


def rounds(events: Sequence[Event]) -> list[RoundDone]:
    return [event for event in events if isinstance(event, RoundDone)]


def cut_short(events: Sequence[Event]) -> list[BudgetSpent]:
    return [event for event in events if isinstance(event, BudgetSpent)]


RELAY = phase("relay", 3, "relay", cohort=3, local=budget())
AFTER = phase("after", 2, cohort=2, local={"dp": dp(accountant="rdp")})


@pytest.fixture(scope="module")
def leaving_out() -> RunPlan:
    return job(RELAY, phase("parallel", 30, cohort=3, local=budget() | {"epochs": {"uniform": [1, 3]}}), AFTER)


@pytest.fixture(scope="module")
def left_out(leaving_out: RunPlan) -> tuple[np.ndarray, list[Event]]:
    """The model and the events of one host."""
    return run_on_hosts(leaving_out, 1)


@pytest.mark.slow
def test_only_clients_without_budget_for_an_update_are_left_out(leaving_out: RunPlan) -> None:
    _, events = run_on_hosts(leaving_out, 1)
    plans = leaving_out.phases
    total: dict[int, Counter[Mechanism]] = {}
    left_out = 0
    for done in rounds(events):
        index = RoundIndex(["relay", "parallel", "after"].index(done.phase), done.round, done.round_in_phase)
        planned = PlannedUpdates(plans[index.phase])
        for client in done.left_out:
            update = with_noise(planned.in_round(client, index, leaving_out.scenario.seed), 1.0)
            assert ACCOUNTANT.epsilon(Counter(update) + total.get(client, Counter())) > BUDGET
        left_out += len(done.left_out)
        for client, spending in done.spent.items():
            assert client not in done.left_out
            total.setdefault(client, Counter()).update(spending)
            assert done.phase == "after" or ACCOUNTANT.epsilon(total[client]) <= BUDGET
        assert done.client_updates + len(done.left_out) == (3 if done.phase != "after" else 2)
        assert done.scalars.get("left_out") == (len(done.left_out) if done.phase != "after" else None)
    assert left_out > 3


def test_a_phase_whose_clients_have_no_budget_left_ends_evaluated_and_the_next_one_follows(
    leaving_out: RunPlan,
) -> None:
    scenario = leaving_out.scenario.model_copy(
        update={"evaluation": leaving_out.scenario.evaluation.model_copy(update={"every": 100})}
    )
    _, events = run_on_hosts(replace(leaving_out, scenario=scenario), 1)
    (ended,) = cut_short(events)
    assert (ended.phase, ended.ends_run) == ("parallel", False)
    assert ended.reason == "an update of any client would exceed local.dp.max_epsilon = 15"
    assert len(ended.left_out) == 3
    done = [event.round for event in rounds(events)]
    assert done == [*range(1, ended.round), 34, 35]
    assert [event.round for event in events if isinstance(event, Evaluated)] == [3, ended.round - 1, 35]


@pytest.mark.parametrize(
    ("schedule", "hosts", "keeping"),
    [("parallel", 1, {}), ("parallel", 3, {"transforms": [{"name": "top_k", "share": 0.3}]}), ("relay", 3, {})],
    ids=["parallel", "parallel with client states", "relay"],
)
def test_a_cohort_without_budget_is_a_round_without_participants_while_others_can_afford_an_update(
    schedule: str, hosts: int, keeping: dict[str, Any]
) -> None:
    """Client 0 is drawn twice as often as client 1, and its budget spent first."""
    turns = phase("turns", 40, schedule, cohort={"explicit": [[0], [0], [1]]}, local=budget(), **keeping)
    scheduler, _ = cast(job(turns, AFTER | keeping, evaluation={"every": 1}), hosts)
    events = list(scheduler.run())
    (ended,) = cut_short(events)
    by_round = {event.round: event for event in rounds(events)}
    scores = {event.round: event.scores for event in events if isinstance(event, Evaluated)}
    of_turns = [done for done in by_round.values() if done.phase == "turns"]
    updates = Counter(client for done in of_turns for client in done.spent)
    assert sorted(updates) == [0, 1]
    for client, spent in spent_in(list(of_turns)).items():
        one_more = Counter({mechanism: times // updates[client] for mechanism, times in spent.items()})
        assert ACCOUNTANT.epsilon(spent) <= BUDGET < ACCOUNTANT.epsilon(spent + one_more)
    idle = [done for done in of_turns if not done.client_updates]
    assert updates[1] > idle[0].round // 3
    assert ended.round == 3 * updates[1] + 1
    for done in idle:
        assert (done.left_out, dict(done.spent), done.steps, done.scalars) == ((0,), {}, 0, {"left_out": 1.0})
        assert np.isnan(done.train_loss)
        assert scores[done.round] == scores[done.round - 1]
        assert done.traffic == by_round[done.round - 1].traffic
    assert len(by_round) - len(of_turns) == AFTER["rounds"]


@pytest.mark.parametrize("eval_model", ["global", "average", "ema"])
@pytest.mark.parametrize("algorithm", ["scaffold", {"name": "fedadam", "lr": 0.1}], ids=str)
def test_a_phase_may_begin_with_rounds_without_participants(algorithm: Any, eval_model: str) -> None:
    """Client 0 is spent before; what the server keeps begins with the first round in which somebody takes part."""

    def turns(*clients: int) -> dict[str, Any]:
        cohorts = {"explicit": [[client] for client in clients]}
        return phase("p", len(clients), cohort=cohorts, algorithm=algorithm, eval_model=eval_model, local=budget())

    spending = phase("spending", 12, "relay", cohort={"explicit": [[0]]}, local=budget())
    model, events = run_on_hosts(job(spending, turns(0, 0, 1, 0, 1)), 1)
    assert [done.client_updates for done in rounds(events) if done.phase == "p"] == [0, 0, 1, 0, 1]
    assert np.isfinite(model).all()


def test_a_run_can_stop_instead_before_the_first_update_that_would_exceed_it() -> None:
    stopping = job(phase("relay", 30, "relay", cohort=3, local=budget(when_spent="stop")), AFTER)
    model, events = run_on_hosts(stopping, 1)
    (ended,) = cut_short(events)
    assert (ended.phase, ended.ends_run, ended.left_out) == ("relay", True, ())
    assert ended.reason.startswith("an update of client ")
    assert [event.round for event in rounds(events)] == list(range(1, ended.round))
    assert all(ACCOUNTANT.epsilon(spent) <= BUDGET for spent in spent_in(events).values())
    assert not any(event.left_out for event in rounds(events))
    shorter = job(phase("relay", ended.round - 1, "relay", cohort=3, local=budget(when_spent="stop")))
    assert np.array_equal(run_on_hosts(shorter, 2)[0], model)


def test_updates_under_way_count_as_spent(leaving_out: RunPlan) -> None:
    """On Ray, rounds are submitted before earlier ones are over; who takes part must not depend on it."""
    scenario, plans = leaving_out.scenario, leaving_out.phases
    drawn = {round: [int(client) for client in stream(5, "test", round).permutation(5)[:3]] for round in range(4, 34)}

    def admitted(ahead: int) -> list[tuple[Sequence[int], tuple[int, ...]]]:
        accounts = PrivacyBudget(scenario.seed, plans)
        planned = PlannedUpdates(plans[1])
        found, open_rounds = [], []
        for round, cohort in drawn.items():
            index = RoundIndex(1, round, round - 3)
            admission = accounts.admit(index, cohort)
            found.append((admission.cohort, admission.left_out))
            spent = {client: with_noise(planned.in_round(client, index, 3), 1.0) for client in admission.cohort}
            open_rounds.append((index, UpdateReport({}, sum_of_nothing(), spent=spent)))
            while len(open_rounds) > ahead:
                committed, report = open_rounds.pop(0)
                accounts.commit(committed, [report])
        return found

    one_by_one = admitted(0)
    assert any(left_out for _, left_out in one_by_one)
    assert admitted(2) == admitted(30) == one_by_one


def test_admitting_a_cohort_takes_work_in_proportion_to_it() -> None:
    given = job(phase("p", cohort=3, local=budget()))
    (plan,) = given.phases

    def admitted(clients: int) -> int:
        crowd = replace(plan.population, sizes=np.full(clients, 8))
        accounts = PrivacyBudget(given.scenario.seed, [plan.with_facts(population=crowd)])
        cohort = [Counted(client) for client in range(clients)]
        return touched_by(lambda: accounts.admit(RoundIndex(0, 1, 1), cohort))

    assert admitted(200) < 3 * admitted(100)


def sum_of_nothing() -> Any:
    from rayfl.engine.totals import Traffic

    return Traffic()


@pytest.mark.parametrize("round", [3, 6])  # where the phases meet, and once clients have been left out
def test_a_run_that_goes_on_from_a_snapshot_spends_and_leaves_out_as_if_never_interrupted(
    round: int, leaving_out: RunPlan, left_out: tuple[np.ndarray, list[Event]]
) -> None:
    model, events = left_out
    snapshot, store = snapshot_after(leaving_out, round, 2)
    before = spent_in([event for event in rounds(events) if event.round <= round])
    assert {client: dict(spent) for client, spent in snapshot.privacy.spent.items()} == before
    earlier = (event.left_out for event in rounds(events) if event.round <= round)
    assert set(snapshot.privacy.left_out) == {client for left_out in earlier for client in left_out}
    resumed, later = continued(leaving_out, snapshot, store, 3)
    assert np.array_equal(resumed, model)
    done = [event for event in rounds(events) if event.round > round]
    assert repr(without_clock(rounds(later))) == repr(without_clock(done))
    assert repr(cut_short(later)) == repr(cut_short(events))


def test_clients_that_keep_state_go_on_after_a_phase_that_ended_early() -> None:
    """Hosts count committed rounds, to notice that they have lost their clients' states."""
    keeping: dict[str, Any] = {"transforms": [{"name": "top_k", "share": 0.3}]}
    given = job(phase("first", 30, cohort=3, local=budget(), **keeping), AFTER | keeping)
    model, events = run_on_hosts(given, 3)
    (ended,) = cut_short(events)
    assert [event.round for event in rounds(events)] == [*range(1, ended.round), 31, 32]
    resumed, _ = continued(given, *snapshot_after(given, ended.round - 1, 3), hosts=2)
    assert np.array_equal(resumed, model)


@pytest.mark.slow
def test_central_training_spends_every_clients_budget() -> None:
    local = {"batch_size": 4, "steps": 3, **budget()}
    central = {"name": "central", "schedule": "central", "rounds": 300, "local": local}
    _, events = run_on_hosts(job(phase("relay", 1, "relay", cohort=1, local=budget()), central), 1)
    (ended,) = cut_short(events)
    spent = spent_in(events)
    (client,) = spent.keys() - {5}
    whole = spent[client] + spent[5]
    assert ACCOUNTANT.epsilon(whole) <= BUDGET
    one_more = next(iter(rounds(events)[-1].spent[5].items()))
    assert ACCOUNTANT.epsilon(whole + Counter(dict([one_more]))) > BUDGET
    assert ended.phase == "central"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"accountant": "rdp"},
            r"phases\.p\.local\.dp: in round 1 client \d spent more than 'tests.*scene:Greedy' plans for",
        ),
        (budget()["dp"], r"phases\.p\.local\.dp: in round 1 client \d spent more than"),
    ],
)
def test_an_algorithm_that_asks_for_more_than_it_declares_is_stopped(options: dict[str, Any], message: str) -> None:
    given = phase("p", local={"dp": dp(**options)}) | {"algorithm": "tests.privacy.samples.scene:Greedy"}
    with pytest.raises(RayflError, match=message + r".*sample_requests") as caught:
        run_on_hosts(job(given), 1)
    assert "\n" not in str(caught.value)


def test_one_that_asks_for_less_is_stopped_where_a_budget_depends_on_it() -> None:
    less = phase("p", local=budget()) | {"algorithm": "tests.privacy.samples.scene:Frugal"}
    with pytest.raises(RayflError, match=r"max_epsilon: in round 1 client \d spent less than .*sample_requests"):
        run_on_hosts(job(less), 1)


class RepeatingHost:
    """A host that dies at the end of every client update, and repeats it: the first answer is lost."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._host, name)
        if name not in ("answer", "relay"):
            return method

        def twice(*arguments: Any) -> Any:
            method(*arguments)
            return method(*arguments)

        return twice


def test_an_update_that_a_host_repeats_is_booked_once() -> None:
    local = {"dp": dp(accountant="rdp")}
    given = job(phase("relay", 2, "relay", cohort=3, local=local), phase("parallel", 2, cohort=3, local=local))

    def spent(repeats: bool) -> SpendingByClient:
        server = Server(given)
        host: Any = Host(0, given)
        backend = InlineBackend([RepeatingHost(host) if repeats else host], server)  # type: ignore[list-item]
        scheduler = Scheduler(given, backend)
        list(scheduler.run())
        return snapshot_of(scheduler, MemoryStore()).privacy.spent

    assert spent(repeats=True) == spent(repeats=False) != {}
