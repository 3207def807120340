"""The conversion from RDP to epsilon, compared with dp-accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

from rayfl.privacy.composition import LATTICE_ORDERS, OPACUS_ORDERS, WIDE_ORDERS, epsilon_of_rdp, history


@pytest.mark.parametrize("delta", [1e-7, 1e-3])
@pytest.mark.parametrize("noise", [0.5, 4.0, 40.0])
def test_a_gaussian_has_the_epsilon_of_dp_accounting(delta: float, noise: float) -> None:
    rdp = OPACUS_ORDERS / (2 * noise**2)
    expected, _ = compute_epsilon(OPACUS_ORDERS, rdp, delta)
    assert epsilon_of_rdp(rdp, OPACUS_ORDERS, delta) == pytest.approx(expected, rel=1e-9)


def test_a_history_is_sorted_and_leaves_out_what_was_not_used() -> None:
    assert history({2.0: 1, 1.0: 3, 1.5: 0}) == ((1.0, 3), (2.0, 1))


def test_the_orders_for_cohorts_go_from_tenths_to_512() -> None:
    tenths = [number / 10 for number in range(11, 110)]
    np.testing.assert_allclose(WIDE_ORDERS, [*tenths, *range(11, 65), *range(68, 257, 4), 384, 512])
    assert LATTICE_ORDERS.tolist() == [*range(2, 65), *range(68, 257, 4), 384, 512]


def test_epsilon_is_never_negative_and_infinite_where_every_order_is() -> None:
    nothing = np.zeros((2, len(WIDE_ORDERS)))
    assert epsilon_of_rdp(nothing, WIDE_ORDERS, 0.5).tolist() == [0, 0]
    assert epsilon_of_rdp(nothing[0] + np.inf, WIDE_ORDERS, 1e-5) == math.inf


def test_an_order_that_could_not_be_computed_bounds_nothing() -> None:
    rdp = WIDE_ORDERS / 8
    known = (WIDE_ORDERS < 5) | (WIDE_ORDERS > 20)
    of_the_others = epsilon_of_rdp(rdp[known], WIDE_ORDERS[known], 1e-5)
    assert epsilon_of_rdp(np.where(known, rdp, np.nan), WIDE_ORDERS, 1e-5) == of_the_others
    assert of_the_others > epsilon_of_rdp(rdp, WIDE_ORDERS, 1e-5)
    assert epsilon_of_rdp(np.full(len(WIDE_ORDERS), np.nan), WIDE_ORDERS, 1e-5) == math.inf
