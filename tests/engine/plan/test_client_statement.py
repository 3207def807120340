"""The client-level statement of a run, compared with dp-accounting for the same rounds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from rich.console import Console
from scipy.optimize import brentq
from scipy.stats import norm

import rayfl
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.client_ledger import ClientLedger
from rayfl.engine.plan.client_statement import ClientAccount, client_statement, planned_cost
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from tests.engine.scenes import run_on_hosts, tables
from tests.privacy.clients.scenes import DELTA, PEOPLE, central, job, local, phase, target

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def sizes(of: RunPlan) -> np.ndarray:
    return of.result.population.sizes


def account(of: RunPlan) -> ClientAccount:
    return ClientAccount(of)


def statement(of: RunPlan, round: int) -> dict[str, Any]:
    return client_statement(of, round)


@pytest.mark.slow
def test_bernoulli_rounds_cost_what_poisson_sampling_costs() -> None:
    found = account(job(phase(rounds=20, cohort={"bernoulli": 0.25}, dp=central())))
    for rounds in (1, 7, 20):
        exact = PLDAccountant(ADD).compose(PoissonSampledDpEvent(0.25, GaussianDpEvent(1.0)), rounds)
        assert found.epsilon(rounds) == pytest.approx(exact.get_epsilon(DELTA), abs=0.03)


def test_rounds_of_fixed_size_cost_two_bounds_without_replacement() -> None:
    exact = RdpAccountant(neighboring_relation=REPLACE)
    exact.compose(SampledWithoutReplacementDpEvent(12, 3, GaussianDpEvent(5.0 / 2)), 9)
    expected = exact.get_epsilon(DELTA)
    for cohort in (3, 0.25):
        found = account(job(phase(rounds=9, cohort=cohort, dp=central(noise_multiplier=5.0))))
        assert found.epsilon(9) == pytest.approx(expected, rel=0.01)


def gaussian(noise: float, times: int) -> float:
    """Epsilon at DELTA, solved from Balle and Wang's closed form of delta."""
    mu = math.sqrt(times) / noise

    def excess(epsilon: float) -> float:
        inside, outside = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
        return float(inside - math.exp(epsilon) * outside) - DELTA

    return float(brentq(excess, 0, 50)) if excess(0) > 0 else 0.0


def test_known_cohorts_cost_the_client_that_takes_part_most_and_no_other() -> None:
    explicit = job(phase(rounds=5, cohort={"explicit": [[0, 1], [1, 2, 3]]}, dp=central(noise_multiplier=6.0)))
    for rounds, most in ((1, 1), (2, 2), (5, 5)):
        assert account(explicit).epsilon(rounds) == pytest.approx(gaussian(3.0, most), rel=1e-3)
    everybody = job(phase(rounds=4, cohort=12, dp=central(noise_multiplier=6.0)))
    assert account(everybody).epsilon(4) == pytest.approx(gaussian(3.0, 4), rel=1e-3)


@pytest.mark.parametrize("changes", [{"schedule": "relay", "algorithm": "fedavg"}, {}], ids=["relay", "parallel"])
def test_local_noise_is_composed_over_the_rounds_in_which_clients_took_part(changes: dict[str, Any]) -> None:
    hidden = job(phase(rounds=8, cohort={"bernoulli": 0.3}, dp=local(noise_multiplier=8.0), **changes))
    took_part = np.zeros(12, np.int64)
    _, events = run_on_hosts(hidden, 1)
    updates = [event.client_updates for event in events if isinstance(event, RoundDone)]
    for round in range(1, 9):
        cohort = cohort_of(hidden.scenario.phases[0], 7, RoundIndex(0, round, round), sizes(hidden))
        assert len(cohort) == updates[round - 1]
        took_part[cohort] += 1
        assert account(hidden).epsilon(round) == pytest.approx(gaussian(4.0, int(took_part.max())), rel=1e-3)


def test_phases_add_up_for_the_least_protected_client() -> None:
    """Client 0 takes part three times in a relay with little noise, client 5 five times with more."""
    little = phase(
        name="relay",
        schedule="relay",
        algorithm="fedavg",
        rounds=3,
        cohort={"explicit": [[0]]},
        dp=local(noise_multiplier=4.0),
    )
    much = phase(rounds=5, cohort={"explicit": [[5]]}, dp=central(noise_multiplier=40.0))
    both = account(job(little, much))
    assert both.epsilon(3) == both.epsilon(8) == pytest.approx(gaussian(2.0, 3), rel=1e-3)
    for noise, rounds, least in ((4.0, 5, "as if all took part"), (2.0, 40, "by Rényi divergence")):
        mixed = account(job(little, phase(rounds=rounds, cohort=1, dp=central(noise_multiplier=2 * noise))))
        renyi = RdpAccountant(neighboring_relation=REPLACE)
        sampled = SampledWithoutReplacementDpEvent(12, 1, GaussianDpEvent(noise))
        renyi.compose(sampled, rounds).compose(GaussianDpEvent(2.0), 3)
        bounds = {
            "by Rényi divergence": renyi.get_epsilon(DELTA),
            "as if all took part": gaussian((rounds / noise**2 + 3 / 2.0**2) ** -0.5, 1),
        }
        assert min(bounds, key=lambda name: bounds[name]) == least, bounds
        assert mixed.epsilon(rounds + 3) == pytest.approx(bounds[least], rel=0.01)


def test_a_ledger_asked_out_of_order_answers_the_same() -> None:
    hidden = job(phase(rounds=8, cohort=5, dp=local()))
    asked = ClientLedger(hidden.scenario, [1.0], sizes(hidden))
    later = asked.spent(8)
    assert asked.spent(2) == ClientLedger(hidden.scenario, [1.0], sizes(hidden)).spent(2) != later
    assert asked.spent(8) == later
    assert asked.with_noise([2.0]).spent(2) == ClientLedger(hidden.scenario, [2.0], sizes(hidden)).spent(2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"cohort": {"bernoulli": 0.25}, "dp": target(3.0)},
        {"cohort": 3, "dp": target(3.0)},
        {"cohort": 3, "dp": target(3.0, level="local")},
        {"cohort": {"bernoulli": 0.25}, "dp": target(3.0, clip_norm={"quantile": 0.5}, accountant="rdp")},
    ],
    ids=["poisson", "fixed", "local", "rdp"],
)
def test_a_target_is_met_and_hardly_undercut_at_the_end_of_the_phase(changes: dict[str, Any]) -> None:
    hidden = job(phase(rounds=10, **changes))
    assert 2.9 < account(hidden).epsilon(10) <= 3.0
    assert hidden.phases[0].hiding is not None
    noise = hidden.phases[0].hiding.noise_multiplier
    given = {key: value for key, value in changes["dp"].items() if key != "target_epsilon"}
    less = job(phase(rounds=10, **changes | {"dp": given | {"noise_multiplier": noise * 0.995}}))
    assert account(less).epsilon(10) > 3.0


@pytest.mark.slow
def test_a_target_counts_what_earlier_phases_spend() -> None:
    first = phase(cohort={"bernoulli": 0.25}, dp=central())
    second = first | {"name": "second", "dp": target(4.0)}
    both = job(first, second)
    assert 3.9 < account(both).epsilon(6) <= 4.0
    assert account(both).epsilon(3) < 3.9


def test_epsilon_is_projected_to_more_clients_at_equal_noise_per_cohort() -> None:
    hidden = job(phase(rounds=5, cohort={"bernoulli": 0.25}, dp=central()))
    for clients, found in statement(hidden, 5)["hypothetical"]["epsilon_by_clients"].items():
        event = PoissonSampledDpEvent(3 / int(clients), GaussianDpEvent(1.0))
        exact = PLDAccountant(ADD).compose(event, 5).get_epsilon(int(clients) ** -1.1)
        assert found == pytest.approx(exact, abs=0.03)
    assert statement(job(phase(dp=local())), 3)["hypothetical"]["epsilon_by_clients"] == {}


def test_a_statement_is_plain_data_and_says_what_is_hidden_from_whom() -> None:
    said = statement(job(phase(cohort={"bernoulli": 0.25}, algorithm="scaffold", dp=central())), 3)
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert said["relation"] == "one client more or less"
    assert said["delta"] == pytest.approx(DELTA)
    assert said["simulated"]
    (one,) = said["phases"]
    assert "neither the cohort nor any single answer" in one["adversary"]
    assert "Poisson" in one["sampling"]
    assert one["released"] == ["delta", "control_delta"]
    secure = statement(job(phase(dp=local(secure=True))), 3)
    assert not secure["simulated"]
    assert secure["relation"] == "one client replaced by another"
    assert secure["phases"][0]["adversary"] == "sees every message and the cohort of every round"


def test_a_phase_without_privacy_leaves_the_run_without_a_guarantee() -> None:
    open_first = job(phase(name="open"), phase(dp=central()))
    said = statement(open_first, 6)
    assert said["epsilon"] == "infinite"
    assert said["phases_without_client_privacy"] == ["open"]
    assert said["epsilon_of_private_phases"] > 0
    assert account(open_first).epsilon(6) == math.inf
    cost = planned_cost(open_first)
    assert cost[-1] == "no client-level guarantee for the run: open without dp"


def test_a_run_whose_cohorts_are_empty_keeps_its_records(tmp_path: Path) -> None:
    empty = phase(rounds=2, cohort={"bernoulli": 1e-9}, dp=central(noise_multiplier=1e-7))
    result = rayfl.run(tables(**PEOPLE, phases=[empty]), backend="inline", out=tmp_path, console=Console(quiet=True))
    assert result.metrics["train_loss"].to_pylist() == [None, None]
    assert result.metrics["bytes"].to_pylist() == [0, 0]


def test_a_run_shows_the_cost_of_a_relay_before_it_and_records_epsilon(tmp_path: Path) -> None:
    relay = phase(schedule="relay", algorithm="fedavg", cohort=6, rounds=4, dp=local(noise_multiplier=8.0))
    scenario = tables(**PEOPLE, phases=[relay])
    console = Console(record=True, width=200)
    result = rayfl.run(scenario, backend="inline", out=tmp_path, console=console)
    shown = console.export_text()
    found = result.metrics["client_epsilon"].to_pylist()
    assert found == sorted(found)
    assert 0 < found[0] == pytest.approx(gaussian(4.0, 1), rel=1e-3)
    line = f"privacy  hidden: local noise multiplier 8; clients' epsilon {found[-1]:.3g} at delta 0.065"
    assert line in shown
    assert shown.index(line) < shown.index("records")
    assert "cohorts are not hidden" in shown
