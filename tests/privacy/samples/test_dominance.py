"""One history dominates another only if every accountant agrees."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event, pld

from rayfl.privacy.samples.accounting import Steps, dominates


def privacy_curve(steps: Steps) -> list[float]:
    """Epsilon at several deltas, by Google's privacy loss distributions."""
    accountant = pld.PLDAccountant()
    for noise, rate, number in steps:
        accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), number)
    return [accountant.get_epsilon(delta) for delta in (1e-7, 1e-5, 1e-2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (((1.0, 0.3, 4),), ((1.0, 0.3, 4),)),
        (((1.0, 0.3, 4),), ((1.0, 0.25, 4),)),
        (((1.0, 0.3, 5),), ((1.0, 0.3, 4),)),
        (((1.0, 1.0, 1), (1.0, 0.2, 6)), ((1.0, 0.5, 1), (1.0, 0.1, 5))),
        (((1.0, 0.3, 3), (1.0, 0.4, 3)), ((1.0, 0.1, 2), (1.0, 0.3, 2), (1.0, 0.35, 2))),
        (((1.0, 0.3, 4), (2.0, 0.5, 3)), ((2.0, 0.4, 3),)),
    ],
    ids=str,
)
def test_a_dominating_mechanism_costs_more_at_every_delta(one: Steps, other: Steps) -> None:
    assert dominates(one, other)
    assert (np.array(privacy_curve(one)) >= np.array(privacy_curve(other)) - 1e-3).all()
    assert one == other or not dominates(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (((1.0, 0.3, 4),), ((1.0, 0.3, 5),)),
        (((1.0, 0.3, 40),), ((1.0, 0.31, 1),)),
        (((1.0, 0.3, 40),), ((2.0, 0.3, 1),)),
        (((1.0, 0.5, 1), (1.0, 0.1, 9)), ((1.0, 0.4, 2),)),
        ((), ((1.0, 0.1, 1),)),
    ],
    ids=str,
)
def test_where_a_step_has_no_partner_nothing_follows(one: Steps, other: Steps) -> None:
    assert not dominates(one, other)


def test_histories_that_accountants_order_differently_dominate_neither_way() -> None:
    by_rdp_first, by_prv_first = ((1.0, 32 / 125, 4),), ((1.0, 1.0, 1),)
    assert not dominates(by_rdp_first, by_prv_first)
    assert not dominates(by_prv_first, by_rdp_first)
