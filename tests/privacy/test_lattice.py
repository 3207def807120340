"""Contributions in whole steps never exceed the bound, and are within one step of the original."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rayfl.errors import ScenarioError
from rayfl.privacy.secure_noise import LEAST_NOISE, SIGMA_BITS, Lattice, check_noise

NOISE = st.floats(LEAST_NOISE, 1e4)
VALUES = arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=32))


def steps_of(lattice: Lattice, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    steps = lattice.in_steps(values, values.norm(dim=1))
    return steps, lattice.admits(steps.square().sum(dim=1))


@given(VALUES, NOISE, st.floats(1e-3, 1e3))
def test_every_admitted_vector_is_of_integers_and_within_the_bound(
    values: np.ndarray, noise: float, bound: float
) -> None:
    lattice = Lattice(noise, bound)
    steps, admitted = steps_of(lattice, torch.from_numpy(values))
    for row, good in zip(steps, admitted, strict=True):
        if good:
            whole = [int(step) for step in row.tolist()]
            assert whole == row.tolist()
            assert sum(step * step for step in whole) <= lattice.largest_norm**2


@given(st.integers(1, 60), NOISE, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_finite_contributions_are_admitted_and_within_a_step_of_what_clipping_leaves(
    length: int, noise: float, bound: float, scale: float
) -> None:
    lattice = Lattice(noise, bound)
    values = torch.randn(3, length, generator=torch.Generator().manual_seed(length)) * scale
    steps, admitted = steps_of(lattice, values)
    assert admitted.all()
    clipped = values.double() * (bound / values.double().norm(dim=1, keepdim=True)).clamp(max=1)
    difference = (steps * lattice.step - clipped).abs()
    # cut off towards zero, by less than a step; the bound itself is rounded down to whole steps
    assert (difference <= lattice.step * 1.01 + clipped.abs() * (2.0**-19 + 1 / lattice.largest_norm)).all()
    assert (steps.abs() * lattice.step <= clipped.abs() * (1 + 2.0**-22)).all()


def test_noise_is_at_least_as_many_bounds_as_the_account_says() -> None:
    for noise in (LEAST_NOISE, 0.3, 1.0, 1.1, 3.7, 1e3):
        lattice = Lattice(noise, 0.7)
        assert 2**SIGMA_BITS / lattice.largest_norm >= noise
        assert 2**SIGMA_BITS * lattice.step == pytest.approx(noise * 0.7)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_changes_without_a_norm_are_left_out(value: float) -> None:
    values = torch.tensor([[1.0, 2.0], [value, 3e38], [0.0, 0.0]])
    steps, admitted = steps_of(Lattice(1.0, 1.0), values)
    assert admitted[[0, 2]].all()
    assert not admitted[1] or not steps[1].any()


def test_a_norm_that_was_computed_wrongly_is_found_out() -> None:
    lattice, values = Lattice(1.0, 1.0), torch.ones(1, 100)
    assert not lattice.admits(lattice.in_steps(values, torch.tensor([9.0])).square().sum(dim=1)).any()


def test_noise_without_a_lattice_is_rejected() -> None:
    check_noise(LEAST_NOISE, "phases.p.local.dp")
    with pytest.raises(ScenarioError, match=r"phases.p.local.dp: secure noise needs a noise multiplier of at least"):
        check_noise(LEAST_NOISE * 0.99, "phases.p.local.dp")
