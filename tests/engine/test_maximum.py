from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.engine.exact_sum import NotFiniteError, SumRangeError
from rayfl.engine.reduction import Maximum, combine_maxima

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


def largest(vectors: list[tuple[float, ...]]) -> np.ndarray:
    maximum = Maximum("loss")
    for vector in vectors:
        maximum.add(torch.tensor(vector, dtype=torch.float32))
    return maximum.partial()


@given(st.lists(st.tuples(finite, st.sampled_from([-0.0, 0.0, -1.0])), min_size=1, max_size=12), st.randoms())
def test_any_order_and_any_spread_over_hosts_gives_the_same_bits(vectors, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = random.sample(vectors, len(vectors))
    cut = random.randint(0, len(vectors) - 1)
    parts = [largest(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    found = combine_maxima("loss", parts)
    assert found.tolist() == [max(column) for column in zip(*vectors, strict=True)]
    assert found.tobytes() == combine_maxima("loss", [largest(vectors)]).tobytes()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_says_that_training_diverged(value: float) -> None:
    with pytest.raises(NotFiniteError, match="'loss' contains NaN or infinity: training diverged; use a smaller lr"):
        largest([(1.0, value)])


def test_vectors_of_different_lengths_are_rejected_on_a_host_and_between_hosts() -> None:
    with pytest.raises(SumRangeError, match="its 'loss' has 1 values, but those of other clients have 2"):
        largest([(1.0, 2.0), (1.0,)])
    with pytest.raises(SumRangeError, match=r"different numbers of values in 'loss': \[1, 2\]"):
        combine_maxima("loss", [largest([(1.0, 2.0)]), largest([(1.0,)])])


def test_the_vectors_that_were_added_stay_as_they_are() -> None:
    vectors = [torch.tensor([1.0, -2.0]), torch.tensor([0.0, 3.0])]
    maximum = Maximum("loss")
    for vector in vectors:
        maximum.add(vector)
    assert maximum.partial().tolist() == [1.0, 3.0]
    assert [vector.tolist() for vector in vectors] == [[1.0, -2.0], [0.0, 3.0]]
