from __future__ import annotations

import math
import tracemalloc
from decimal import Decimal, localcontext

import dp_accounting.rdp.rdp_privacy_accountant as reference
import numpy as np
import pytest

from rayfl.privacy.clients.accounting import _log_even_moments, rdp_without_replacement
from rayfl.privacy.composition import WIDE_ORDERS

ORDERS = np.array([1.5, 2, 2.25, 3, 4, 5.5, 8, 16, 32])


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 0.5), (0.1, 2.0), (0.01, 5.0), (0.3, 1.0), (0.05, 0.3), (0.9, 1.5)])
def test_divergences_are_those_of_dp_accounting(rate: float, noise: float) -> None:
    expected = reference._compute_rdp_sample_wor_gaussian(rate, noise, ORDERS.tolist())
    capped = np.minimum(expected, ORDERS / (2 * noise**2))
    np.testing.assert_allclose(rdp_without_replacement(rate, noise, ORDERS), capped, rtol=1e-8)


@pytest.mark.parametrize("noise", [0.05, 0.5, 2.0, 10.0, 40.0])
def test_moments_are_exact_where_differences_of_floats_cancel(noise: float) -> None:
    """E (e^L - 1)^l = sum_k binom(l, k) (-1)^(l - k) e^(k (k - 1) / 2 sigma^2), in 300 digits."""
    found = _log_even_moments(noise, 65)
    with localcontext() as context:
        context.prec = 300
        for exponent in (2, 4, 10, 32, 64):
            powers = [(Decimal(k * (k - 1)) / (2 * Decimal(noise) ** 2)).exp() for k in range(exponent + 1)]
            exact = sum(math.comb(exponent, k) * (-1) ** k * powers[k] for k in range(exponent + 1))
            assert found[exponent // 2] == pytest.approx(float(exact.ln()), rel=1e-9, abs=1e-9)


def test_without_sampling_it_is_the_gaussian_mechanism() -> None:
    np.testing.assert_allclose(rdp_without_replacement(1.0, 3.0, ORDERS), ORDERS / 18)


@pytest.mark.parametrize("noise", [1e-9, 0.01, 0.0499, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("rate", [0.01, 0.4, 0.9])
def test_a_cohort_is_never_worse_than_all_clients(rate: float, noise: float) -> None:
    assert (rdp_without_replacement(rate, noise, ORDERS) <= ORDERS / (2 * noise**2)).all()


@pytest.mark.parametrize("noise", [1e-9, 1e-4, 0.0499, 0.05])
def test_memory_does_not_grow_as_noise_shrinks(noise: float) -> None:
    tracemalloc.start()
    rdp_without_replacement(0.4, noise, WIDE_ORDERS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 2**20
