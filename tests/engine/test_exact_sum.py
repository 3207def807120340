from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.engine.exact_sum import ExactSum, PartialSum, SumRangeError, combine

BITS = 32
finite = st.floats(-100, 100, width=32)


def summed(vectors: list[torch.Tensor], weights: list[float]) -> PartialSum:
    total = ExactSum("delta", BITS)
    for vector, weight in zip(vectors, weights, strict=True):
        total.add(vector, weight)
    return total.partial()


@given(st.lists(st.tuples(finite, st.integers(1, 500)), min_size=2, max_size=20), st.integers(1, 19), st.randoms())
def test_any_order_and_any_spread_over_hosts_gives_the_same_bits(terms, cut, random) -> None:  # type: ignore[no-untyped-def]
    vectors = [torch.tensor([value, -value / 3]) for value, _ in terms]
    weights = [float(weight) for _, weight in terms]
    expected = combine("delta", [summed(vectors, weights)], BITS)
    order = list(range(len(terms)))
    random.shuffle(order)
    cut = min(cut, len(order) - 1)
    parts = [summed([vectors[i] for i in part], [weights[i] for i in part]) for part in (order[:cut], order[cut:])]
    assert np.array_equal(combine("delta", parts, BITS), expected)


@given(st.lists(st.tuples(finite, st.integers(1, 500)), min_size=1, max_size=20))
def test_the_sum_is_within_half_a_grid_step_per_term_of_the_true_sum(terms) -> None:  # type: ignore[no-untyped-def]
    part = summed([torch.tensor([value]) for value, _ in terms], [float(weight) for _, weight in terms])
    true = math.fsum(value * weight for value, weight in terms)
    assert abs(part.total[0] - true) <= len(terms) * 2.0 ** -(BITS + 1)


def test_long_vectors_are_summed_chunk_by_chunk() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(100_003, generator=generator) for _ in range(3)]
    part = summed(vectors, [1.0, 2.0, 3.0])
    true = sum(weight * vector.double().numpy() for weight, vector in zip((1.0, 2.0, 3.0), vectors, strict=True))
    assert np.abs(part.total - true).max() <= 3 * 2.0 ** -(BITS + 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_contribution_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(SumRangeError, match="'delta' holds"):
        ExactSum("delta", BITS).add(torch.tensor([1.0, value]), 1.0)


def test_a_contribution_beyond_the_grid_names_the_limit_and_the_key() -> None:
    with pytest.raises(SumRangeError, match=r"reaches 6e\+05, and numerics.fraction_bits = 32 allows 5.24e\+05"):
        ExactSum("delta", BITS).add(torch.tensor([1000.0]), 600.0)


def test_a_sum_that_may_leave_the_grid_is_refused_on_the_server() -> None:
    part = summed([torch.tensor([500_000.0])], [1.0])
    combine("delta", [part] * 4, BITS)
    with pytest.raises(SumRangeError, match=r"sum of 'delta' may reach 2.5e\+06"):
        combine("delta", [part] * 5, BITS)
