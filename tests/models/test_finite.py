from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.models.tensors import all_finite


@given(st.lists(st.floats(width=32), max_size=40))
def test_a_vector_is_finite_if_all_its_values_are(values: list[float]) -> None:
    assert all_finite(torch.tensor(values)) == all(map(math.isfinite, values))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_in_a_long_vector_decides(value: float) -> None:
    vector = torch.randn(100_003)
    assert all_finite(vector)
    for place in (0, 50_000, 100_002):
        changed = vector.clone()
        changed[place] = value
        assert not all_finite(changed)
