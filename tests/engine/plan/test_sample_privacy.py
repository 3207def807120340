"""The planned spending of runs with `local.dp`, from cohorts and sizes, compared with actual spending."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import PlannedSpending
from rayfl.engine.plan.sample_accesses import PlannedUpdates, participations
from rayfl.errors import ScenarioError
from rayfl.local.spending import Mechanism
from rayfl.privacy.composition import epsilons_by_rdp
from rayfl.privacy.samples.accounting import Accountant
from rayfl.privacy.samples.calibration import Access, Accesses, times, with_noise, without_noise
from tests.engine.scenes import run_on_hosts
from tests.privacy.samples import scene
from tests.privacy.samples.scene import job, spent_in
from tests.user_code import SHARD_SIZES

DELTA = 1e-5


def dp(**options: Any) -> dict[str, Any]:
    """By Rényi divergence, which is quick: most tests are about what is accessed, whatever it costs."""
    return scene.dp(**{"accountant": "rdp", **options})


def phase(name: str, rounds: int = 3, schedule: str = "parallel", cohort: Any = 2, **more: Any) -> dict[str, Any]:
    local = {"dp": dp()} | more.pop("local", {})
    return scene.phase(name, rounds, schedule, cohort, local=local, **more)


def planned_accesses(*phases: dict[str, Any], **more: Any) -> dict[int, Counter[Access]]:
    """The accesses to clients' samples in a whole run."""
    prepared = job(*phases, **more)
    total: dict[int, Counter[Access]] = {}
    taken = participations(prepared.scenario, prepared.phases)
    for plan, of_phase in zip(prepared.phases, taken, strict=True):
        planned = PlannedUpdates(plan)
        for client, rounds in of_phase.items():
            total.setdefault(client, Counter()).update(times(planned.at_most(client), rounds))
    return total


def accesses_of(algorithm: Any, client: int = 2, **local: Any) -> Accesses:
    """The accesses of one round to the client with 13 samples: two epochs of batches of 4."""
    prepared = job(phase("only", local={"dp": None} | local) | {"algorithm": algorithm})
    return PlannedUpdates(prepared.phases[0]).at_most(client)


PHASES = [
    phase("relay", 5, "relay", cohort=3, order="no_repeat"),
    phase("bernoulli", 4, cohort={"bernoulli": 0.4}, local={"dp": dp(noise_multiplier=2.0)}),
    phase("by_size", 4, cohort={"by_size": 2}, local={"steps": 3, "dp": dp(noise_multiplier=2.0)}),
    phase("explicit", 3, cohort={"explicit": [[0, 1], [4]]}, local={"batch_size": "full"}),
]


def test_runs_spend_what_was_planned() -> None:
    _, events = run_on_hosts(job(*PHASES), 2)
    spent = spent_in(events)
    planned = planned_accesses(*PHASES)
    assert spent.keys() == planned.keys()
    assert {client: without_noise(each) for client, each in spent.items()} == planned


def test_numbers_that_are_drawn_count_at_their_largest_and_are_known_round_by_round() -> None:
    drawn = phase("drawn", 4, local={"epochs": {"uniform": [1, 3]}})
    prepared = job(drawn)
    planned, (plan,) = planned_accesses(drawn), prepared.phases
    updates = PlannedUpdates(plan)
    _, events = run_on_hosts(prepared, 1)
    used = {client: without_noise(each) for client, each in spent_in(events).items()}
    assert used != planned
    assert all(used[client][access] <= number for client in used for access, number in planned[client].items())
    for number, event in enumerate((event for event in events if hasattr(event, "spent")), start=1):
        for client, spent in event.spent.items():
            assert without_noise(spent) == updates.in_round(client, RoundIndex(0, number, number), 3)


def test_a_step_draws_with_rate_batch_size_over_samples_and_at_most_1() -> None:
    assert accesses_of("fedavg") == {Access(4 / 13): 8}
    assert accesses_of("fedavg", batch_size=20) == {Access(1.0): 2}
    assert accesses_of("fedavg", batch_size="full", epochs=3) == {Access(1.0): 3}
    assert accesses_of("fedavg", steps=5) == {Access(4 / 13): 5}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ({"name": "scaffold", "option": "II"}, {Access(4 / 13): 8}),
        ({"name": "scaffold", "option": "I"}, {Access(4 / 13): 8, Access(1.0): 1}),
        ("ditto", {Access(4 / 13): 16}),
        # 3 queries of 13 samples: 10 of support, hence 3 batches of 4
        ({"name": "coprefl"}, {Access(4 / 10, "support"): 6, Access(1.0, "query"): 2}),
        ({"name": "coprefl", "split": "round"}, {Access(4 / 10): 6, Access(1.0): 2}),
        ({"name": "perfedavg"}, {Access(1.0): 8 * 3}),
        ({"name": "perfedavg", "variant": "hessian_free"}, {Access(1.0): 8 * 5}),
    ],
)
def test_every_request_that_touches_samples_counts(algorithm: Any, expected: Accesses) -> None:
    assert accesses_of(algorithm) == expected


def test_training_on_all_samples_together_is_planned_for_their_pool() -> None:
    central = {"name": "central", "schedule": "central", "rounds": 3, "local": {"batch_size": 4, "dp": dp()}}
    total = sum(SHARD_SIZES)
    assert planned_accesses(central) == {5: {Access(4 / total): 3 * math.ceil(total / 4)}}


def final_epsilons(noise: Any, name: Any, *phases: dict[str, Any]) -> dict[int, float]:
    """Returns every client's final epsilon by phase, from the accesses of a run and the noise found."""
    accountant, spent = Accountant(name, DELTA), dict[int, dict[Mechanism, int]]()
    for number in range(len(phases)):
        rest = [{**other, "rounds": other["rounds"] if place == number else 0} for place, other in enumerate(phases)]
        plain = [{**other, "local": {**other["local"], "dp": dp()}} for other in rest]
        for client, accesses in planned_accesses(*plain).items():
            own = noise[number]
            own = float(own[client]) if isinstance(own, np.ndarray) else own
            spent[client] = with_noise(accesses, own, spent.get(client))
    return {client: accountant.epsilon(spending) for client, spending in spent.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_the_noise_for_a_target_keeps_it_for_the_whole_run_so_far(name: Any) -> None:
    # everybody takes part, so that the phases' cohorts do not depend on one another
    given = [
        phase("first", 2, "relay", cohort=5, local={"dp": dp(target_epsilon=4.0, accountant=name)}),
        phase("second", 3, cohort=5, local={"dp": dp(target_epsilon=8.0, accountant=name)}),
    ]
    prepared = job(*given)
    assert 0.98 * 4 <= max(final_epsilons([plan.noise for plan in prepared.phases], name, given[0]).values()) <= 4
    after = max(final_epsilons([plan.noise for plan in prepared.phases], name, *given).values())
    assert 0.98 * 8 <= after <= 8
    assert prepared.spending.epsilons["second"] == pytest.approx(after, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_noise_of_each_clients_own_takes_each_close_to_the_target(name: Any) -> None:
    given = phase("only", 3, cohort={"explicit": [[0, 1, 2, 3]]},
                  local={"dp": dp(target_epsilon=5.0, noise_for="client", accountant=name)})  # fmt: skip
    prepared = job(given)
    (noise,) = (plan.noise for plan in prepared.phases)
    assert isinstance(noise, np.ndarray)
    found = final_epsilons([plan.noise for plan in prepared.phases], name, given)
    assert all(0.98 * 5 <= epsilon <= 5 for epsilon in found.values())
    assert noise[0] > noise[1] > noise[2]
    assert noise[4] == noise.max()  # takes no part; whatever else reads it is on the safe side


def test_a_run_without_dp_has_no_plan() -> None:
    prepared = job(phase("plain", local={"dp": None}))
    assert ([plan.noise for plan in prepared.phases], prepared.spending) == ([None], PlannedSpending())


def test_notes_say_what_makes_epsilon_large_and_delta_too_large() -> None:
    (delta, small) = job(phase("p", 9, local={"dp": dp(delta=0.1, noise_multiplier=0.4)})).spending.notes
    assert "delta = 0.1 is above 1 / (41 training samples)" in delta
    assert "use at most 0.01" in delta
    assert "client 0's: a step draws each of its 5 training samples with rate 0.8" in small
    (none,) = job(phase("p", local={"dp": dp(noise_multiplier=0)})).spending.notes
    assert "epsilon is infinite" in none
    assert not job(phase("p", 1, cohort=1, local={"steps": 1, "dp": dp(noise_multiplier=5)})).spending.notes


def test_shuffled_batches_have_no_planned_epsilon() -> None:
    assert job(phase("p", local={"dp": dp(sampling="shuffled")})).spending.epsilons == {"p": None}


def test_a_budget_refunds_nothing_of_what_was_spent_before_it() -> None:
    first = phase("first", 8, cohort={"explicit": [[0, 1]]}, local={"dp": dp(accountant="rdp")})
    second = phase("second", 2, cohort=5, local={"dp": dp(accountant="rdp", max_epsilon=9.0)})
    spent, limited = job(first, second).spending.epsilons.values()
    assert spent is not None
    assert spent > 2 * 9
    assert limited == spent
    _, events = run_on_hosts(job(first, second), 1)
    used = spent_in(events)
    assert epsilons_by_rdp(list(used.values()), DELTA).max() == pytest.approx(limited, rel=1e-9)
    assert len(used) > 2
    assert job(second).spending.epsilons == {"second": 9}
    (why,) = (note for note in job(first, second).spending.notes if "largest epsilon" in note)
    assert "client 0's" in why


def with_dp(name: str, **options: Any) -> dict[str, Any]:
    return phase(name, local={"dp": dp(**options)})


WITHOUT = phase("open", local={"dp": None})
BUDGET = with_dp("budget", max_epsilon=20, accountant="rdp")


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([WITHOUT, with_dp("p")], r"phases\.open\.local\.dp: is missing; .*'p'.*noise_multiplier = 0"),
        ([with_dp("a"), with_dp("b", delta=1e-6)], r"phases\.b\.local\.dp\.delta: is 1e-06, but 1e-05 in 'a'"),
        ([with_dp("a", accountant="prv"), with_dp("b")], r"phases\.b\.local\.dp\.accountant: is rdp, but prv in 'a'"),
        (
            [BUDGET, with_dp("b", target_epsilon=30, accountant="rdp")],
            r"phases\.b\.local\.dp\.target_epsilon: .*max_epsilon of 'budget'.*give noise_multiplier",
        ),
        (
            [with_dp("a", sampling="shuffled"), with_dp("b", target_epsilon=3)],
            r"phases\.b\.local\.dp\.target_epsilon: no accountant covers sampling = 'shuffled'",
        ),
        (
            [with_dp("a"), with_dp("b", target_epsilon=1)],
            r"phases\.b\.local\.dp\.target_epsilon: 1 is spent before the phase begins: after 'a' a client is at",
        ),
        (
            [with_dp("a", target_epsilon=0.001)],
            r"phases\.a\.local\.dp\.target_epsilon: no amount of noise meets 0\.001 at delta = 1e-05.*fewer rounds",
        ),
        (
            [with_dp("a", max_epsilon=0.5, accountant="rdp")],
            r"phases\.a\.local\.dp\.max_epsilon: 0\.5 lets no client take part: one update costs at least 7\.27",
        ),
        (
            [{**BUDGET, "cohort": 5, "algorithm": {"name": "fedavg", "weighting": "uniform", "aggregation": "krum"}}],
            r"phases\.budget\.local\.dp\.max_epsilon: leaves clients out of cohorts, but .*when_spent = 'stop'",
        ),
        (
            [{"name": "s", "schedule": "central", "data": "server", "rounds": 1,
              "local": {"dp": dp(target_epsilon=3)}}],
            r"phases\.s\.local\.dp\.target_epsilon: the phase trains on the server's samples",
        ),
        (
            [{**with_dp("p"), "cohort": {"sampler": "power_of_choice", "clients": 1, "candidates": 2}}],
            r"phases\.p\.cohort: .*reads what clients report.*another cohort",
        ),
    ],
)  # fmt: skip
def test_phases_without_an_account_are_rejected_before_the_start(phases: list[dict[str, Any]], message: str) -> None:
    data = {"name": "tests.user_code:pictures", "server_share": 0.2}
    with pytest.raises(ScenarioError, match=message) as caught:
        job(*phases, data=data if phases[0]["name"] == "s" else {"name": "tests.user_code:pictures"})
    assert "\n" not in str(caught.value)
