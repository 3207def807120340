"""Epsilons of clients compared with Opacus and Google's dp-accounting, and the number of evaluations."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.local.spending import Mechanism, Spending
from rayfl.privacy.samples.accounting import LARGEST_PRV, Accountant, ClientEpsilons

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from dp_accounting import dp_event, pld
    from opacus import accountants

DELTA = 1e-5
PRV_ERROR = 0.01
"""Opacus adds this to its estimate to get an upper bound."""


def by_opacus(name: Literal["prv", "rdp"], history: list[tuple[float, float, int]], delta: float = DELTA) -> float:
    """A plain loop of steps, as in training with Opacus."""
    accountant = accountants.PRVAccountant() if name == "prv" else accountants.RDPAccountant()
    for noise, rate, steps in history:
        for _ in range(steps):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta))


def by_google(history: list[tuple[float, float, int]], delta: float = DELTA) -> float:
    accountant = pld.PLDAccountant()
    for noise, rate, steps in history:
        accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), steps)
    return float(accountant.get_epsilon(delta))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The histories that Opacus' PRV accountant evaluated."""
    calls: list[Any] = []
    original = accountants.PRVAccountant.get_epsilon

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(tuple(self.history))
        return original(self, *args, **options)

    monkeypatch.setattr(accountants.PRVAccountant, "get_epsilon", counted)
    return calls


@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_steps_of_several_updates_and_phases_give_the_epsilon_of_opacus(name: Literal["prv", "rdp"]) -> None:
    epsilons = ClientEpsilons(Accountant(name, DELTA), num_clients=3)
    for _ in range(4):  # a first phase
        epsilons.book({0: {Mechanism(1.1, 0.07): 15}, 1: {Mechanism(1.1, 0.2): 5}})
    for _ in range(2):  # a second one, of another noise
        epsilons.book({0: {Mechanism(1.7, 0.1): 10}})
    expected = [by_opacus(name, [(1.1, 0.07, 60), (1.7, 0.1, 20)]), by_opacus(name, [(1.1, 0.2, 20)]), 0.0]
    found, _ = epsilons.each()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert epsilons.maximum() == pytest.approx(max(found), abs=1e-9)
    assert epsilons.median() == pytest.approx(sorted(found)[1], abs=1e-9)


@pytest.mark.parametrize(
    "history",
    [  # of two mechanisms; the others are alone, without sampling, and very uneven
        [(1.1, 0.07, 60), (1.7, 0.1, 20)],
        *(
            pytest.param(slow, marks=pytest.mark.slow)
            for slow in ([(1.0, 0.1, 100)], [(4.0, 1.0, 20)], [(0.8, 0.02, 500), (6.0, 1.0, 3)])
        ),
    ],
)
def test_prv_is_an_upper_bound_close_to_googles_privacy_loss_distributions(history: list[Any]) -> None:
    found = Accountant("prv", DELTA).epsilon({Mechanism(noise, rate): steps for noise, rate, steps in history})
    exact = by_google(history)
    assert exact - 1e-3 <= found <= exact + 2 * PRV_ERROR


def test_parts_of_a_clients_samples_compose_in_parallel() -> None:
    accountant = Accountant("rdp", DELTA)
    shared, support, query = Mechanism(1.5, 0.1), Mechanism(1.5, 0.12, "support"), Mechanism(3.0, 1.0, "query")
    found = accountant.epsilon({shared: 10, support: 30, query: 6})
    on_support = by_opacus("rdp", [(1.5, 0.1, 10), (1.5, 0.12, 30)])
    on_query = by_opacus("rdp", [(1.5, 0.1, 10), (3.0, 1.0, 6)])
    assert found == pytest.approx(max(on_support, on_query), abs=1e-9)
    # drawn anew every round they are all of the samples, and add up
    redrawn = accountant.epsilon({shared: 10, Mechanism(1.5, 0.12): 30, Mechanism(3.0, 1.0): 6})
    assert redrawn > max(on_support, on_query) + 0.5


def test_the_same_mechanism_on_a_part_and_on_all_samples_is_one_history() -> None:
    accountant = Accountant("rdp", DELTA)
    found = accountant.epsilon({Mechanism(1.0, 0.2): 3, Mechanism(1.0, 0.2, "support"): 4})
    assert found == pytest.approx(by_opacus("rdp", [(1.0, 0.2, 7)]), abs=1e-9)


def test_spending_on_pooled_samples_counts_for_every_client_and_on_the_servers_for_none() -> None:
    epsilons = ClientEpsilons(Accountant("rdp", DELTA), num_clients=2)
    own, pooled = Mechanism(1.0, 0.2), Mechanism(1.0, 0.01)
    epsilons.book({0: {own: 5}, 2: {pooled: 100}, 3: {Mechanism(0.0, 1.0): 9}})
    both, alone = by_opacus("rdp", [(1.0, 0.2, 5), (1.0, 0.01, 100)]), by_opacus("rdp", [(1.0, 0.01, 100)])
    np.testing.assert_allclose(epsilons.each()[0], [both, alone], atol=1e-9)
    assert epsilons.server() == math.inf


def test_without_noise_epsilon_is_infinite_whatever_else_was_done() -> None:
    accountant = Accountant("prv", DELTA)
    assert accountant.epsilon({Mechanism(0.0, 0.1): 1, Mechanism(9.0, 0.1): 1}) == math.inf
    assert accountant.maximum([{Mechanism(9.0, 0.1): 1}, {Mechanism(0.0, 0.1): 1}]) == math.inf
    assert accountant.epsilon({}) == 0


def test_where_prv_would_run_out_of_numbers_the_bound_by_rdp_stands(asked: list[Any]) -> None:
    found = Accountant("prv", DELTA).epsilon({Mechanism(0.31, 0.5): 997})
    assert found == pytest.approx(by_opacus("rdp", [(0.31, 0.5, 997)]), rel=1e-9)
    assert found > LARGEST_PRV
    assert asked == []


def test_a_delta_that_prv_cannot_resolve_is_rejected_with_a_remedy() -> None:
    with pytest.raises(ScenarioError, match=r"'prv' cannot compute epsilon at delta = 1e-16 .*accountant = 'rdp'"):
        Accountant("prv", 1e-16).epsilon({Mechanism(1.0, 0.1): 10})


class Priced(Accountant):
    """What a history costs is known, by its noise, and asked for the record."""

    def __init__(self, costs: dict[float, float]) -> None:
        super().__init__("prv", DELTA)
        self.costs, self.asked = costs, list[float]()

    def epsilon(self, spending: Spending) -> float:
        ((mechanism, _),) = spending.items()
        self.asked.append(mechanism.noise_multiplier)
        return self.costs[mechanism.noise_multiplier]


def test_histories_are_asked_from_the_largest_bound_on_while_another_may_cost_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = {1.0: 2.5, 1.1: 2.8, 1.2: 1.5}
    spent: list[Spending] = [
        {Mechanism(1.2, 0.2): 40},
        {Mechanism(1.0, 0.2): 40},
        {Mechanism(1.0, 0.1): 40},  # dominated by the one before
        {Mechanism(1.1, 0.2): 40},
        {Mechanism(1.0, 0.2): 40},  # known
    ]
    bounds = np.array([2.0, 4.0, 3.5, 3.0, 4.0])

    def largest(**options: float) -> tuple[float, list[float]]:
        priced = Priced(costs)
        return priced.maximum_of(bounds, spent.__getitem__, **options), priced.asked

    assert largest() == (2.8, [1.0, 1.1])
    assert largest(enough=2.0) == (2.5, [1.0])
    monkeypatch.setattr("rayfl.privacy.samples.accounting.MOST_ASKED", 1)
    assert largest() == (3.0, [1.0])


def test_a_history_that_clients_share_is_computed_once(asked: list[Any]) -> None:
    accountant = Accountant("prv", 1.234e-5)
    for _ in range(3):
        assert accountant.maximum([{Mechanism(1.0, 0.25): 8}] * 100) > 0
    assert len(asked) == 1


def steps_of(samples: int, updates: int = 1) -> Spending:
    """Updates of one epoch in batches of 32, with noise 1."""
    return {Mechanism(1.0, min(1.0, 32 / samples)): updates * math.ceil(samples / 32)}


@pytest.mark.slow
def test_the_largest_epsilon_is_found_where_rdp_puts_another_client_first() -> None:
    clients = [steps_of(samples) for samples in (125, 126, 127, 128, 32)]
    accountant, expected = Accountant("prv", DELTA), []
    for spent in clients:
        ((mechanism, steps),) = spent.items()
        expected.append(by_opacus("prv", [(mechanism.noise_multiplier, mechanism.rate, steps)]))
    bounds = accountant.bounds(clients)
    assert bounds.argmin() == np.argmax(expected) == 4  # last by RDP, and first by PRV
    assert accountant.maximum(clients) == pytest.approx(max(expected), abs=1e-9)
    epsilons = ClientEpsilons(accountant, len(clients))
    epsilons.book(dict(enumerate(clients)))
    np.testing.assert_allclose(epsilons.each()[0], expected, rtol=0, atol=1e-9)
    assert epsilons.maximum() == pytest.approx(max(expected), abs=1e-9)


def test_a_thousand_clients_that_rdp_puts_first_hide_no_costlier_one() -> None:
    epsilons = ClientEpsilons(Accountant("prv", DELTA), 1501)
    epsilons.book({client: steps_of(125) for client in range(1500)} | {1500: steps_of(32)})
    assert epsilons.bounds().argmin() == 1500
    assert epsilons.maximum() == pytest.approx(by_opacus("prv", [(1.0, 1.0, 1)]), abs=1e-9)


@pytest.mark.slow
def test_no_clients_epsilon_exceeds_the_largest_whatever_sizes_and_updates_there_are() -> None:
    rng = np.random.default_rng(0)
    clients = [
        steps_of(int(n), int(updates))
        for n, updates in zip(rng.integers(33, 300, 12), rng.integers(1, 4, 12), strict=True)
    ]
    accountant = Accountant("prv", DELTA)
    assert accountant.maximum(clients) == max(accountant.epsilon(spent) for spent in clients)


def test_prv_is_asked_only_for_histories_that_no_other_dominates(asked: list[Any]) -> None:
    clients = [{Mechanism(1.37, 32 / samples): 4 * updates} for samples in range(97, 129) for updates in (3, 4, 5)]
    found = Accountant("prv", DELTA).maximum(clients)
    assert asked == [((1.37, 32 / 97, 20),)]
    assert found == pytest.approx(by_opacus("prv", [(1.37, 32 / 97, 20)]), abs=1e-9)


@pytest.mark.slow
def test_a_million_clients_of_a_history_each_ask_prv_for_a_few(asked: list[Any]) -> None:
    accountant, clients = Accountant("prv", DELTA), 1_000_000
    epsilons = ClientEpsilons(accountant, clients)
    mechanisms = [Mechanism(4.0, 10 / samples) for samples in range(20, 1020)]
    epsilons.book({client: {mechanisms[client % 1000]: 1 + client // 1000} for client in range(clients)})
    largest, median = epsilons.maximum(), epsilons.median()
    found, exact = epsilons.each()
    assert len(asked) <= 2
    assert not exact
    assert len(set(found.tolist())) > 900_000
    assert largest == pytest.approx(by_opacus("prv", [(4.0, 0.5, 1000)]), abs=1e-9)
    assert 0 < median < largest <= found.max() == pytest.approx(by_opacus("rdp", [(4.0, 0.5, 1000)]), rel=1e-9)


def test_an_account_that_is_restored_goes_on_as_if_never_interrupted() -> None:
    whole, first = (ClientEpsilons(Accountant("rdp", DELTA), 2) for _ in range(2))
    rounds = [{0: {Mechanism(1.0, 0.1): 4}}, {0: {Mechanism(1.0, 0.1): 4}, 1: {Mechanism(1.0, 0.3): 2}}]
    for spent in rounds:
        whole.book(spent)
    first.restore({0: {Mechanism(1.0, 0.1): 4}})
    first.book(rounds[1])
    np.testing.assert_array_equal(first.each()[0], whole.each()[0])
