"""RDP in NumPy compared with Opacus, which sums series, and with closed forms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from rayfl.local.spending import Mechanism
from rayfl.privacy.composition import LEAST_SAMPLED_NOISE, epsilons_by_rdp, rdp, rdp_of
from rayfl.privacy.composition import OPACUS_ORDERS as ORDERS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp


def by_opacus(history: list[tuple[float, float, int]], delta: float) -> float:
    accountant = RDPAccountant()
    accountant.history = history
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is the first or the last
        return float(accountant.get_epsilon(delta))


def test_the_orders_are_those_of_opacus() -> None:
    assert list(ORDERS) == RDPAccountant.DEFAULT_ALPHAS


@pytest.mark.parametrize("noise", [LEAST_SAMPLED_NOISE, 0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.9, 1.0])
def test_every_order_is_what_opacus_sums_up(noise: float, rate: float) -> None:
    expected = compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(ORDERS))
    np.testing.assert_allclose(rdp(Mechanism(noise, rate)), expected, rtol=1e-7, atol=1e-11)


def test_without_sampling_it_is_that_of_a_gaussian() -> None:
    np.testing.assert_allclose(rdp(Mechanism(2.0, 1.0)), ORDERS / 8)


@pytest.mark.parametrize("noise", [LEAST_SAMPLED_NOISE * 0.99, 0.03])
def test_where_noise_is_next_to_nothing_it_is_an_upper_bound(noise: float) -> None:
    exact = compute_rdp(q=0.2, noise_multiplier=noise, steps=1, orders=list(ORDERS))
    assert (rdp(Mechanism(noise, 0.2)) >= exact).all()


def test_it_is_finite_and_never_negative_for_the_smallest_rates_and_the_largest_noise() -> None:
    for noise, rate in [(1e5, 1e-6), (300.0, 1e-5), (0.1, 1e-9)]:
        found = rdp(Mechanism(noise, rate))
        assert np.isfinite(found).all()
        assert (found >= 0).all()


@pytest.mark.parametrize("delta", [1e-7, 1e-5, 1e-3])
def test_epsilons_are_those_of_opacus_accountant(delta: float) -> None:
    histories = [
        [(1.0, 0.1, 100)],
        [(1.3, 0.07, 20), (0.9, 0.3, 40), (5.0, 1.0, 3)],
        [(30.0, 0.01, 5)],
        [(0.4, 1.0, 7)],
    ]
    spendings = [{Mechanism(noise, rate): steps for noise, rate, steps in history} for history in histories]
    expected = [by_opacus(history, delta) for history in histories]
    np.testing.assert_allclose(epsilons_by_rdp(spendings, delta), expected, rtol=1e-9)


def test_parts_count_at_the_larger_of_the_two_and_what_is_about_all_samples_on_top() -> None:
    all_of_it, support, query = Mechanism(1.0, 0.1), Mechanism(1.0, 0.2, "support"), Mechanism(2.0, 1.0, "query")
    found = rdp_of({all_of_it: 5, support: 3, query: 2})
    np.testing.assert_allclose(found, 5 * rdp(all_of_it) + np.maximum(3 * rdp(support), 2 * rdp(query)))


def test_nothing_spent_is_nothing_and_no_noise_is_infinite() -> None:
    assert epsilons_by_rdp([{}, {Mechanism(1.0, 0.5): 0}, {Mechanism(0.0, 0.5): 1}], 1e-5).tolist() == [0, 0, math.inf]
