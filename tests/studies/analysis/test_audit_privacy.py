"""The bounds of the audit for runs within their accounted epsilon, and for others."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom

from rayfl.privacy.samples import batches as noise
from rayfl.privacy.samples import released_sums
from rayfl.studies.analysis.audit_privacy import audited_run, coins, lower_bound, p_value

CANARIES = 1000
DELTA = 1e-5


def bound_and_account(out: Path) -> tuple[float, float]:
    moved, accounted = audited_run(CANARIES, epsilon=1.0, delta=DELTA, seed=0, out=out)
    return lower_bound(moved, coins(CANARIES, 0), DELTA)[0], accounted


def test_the_account_of_a_private_run_is_not_refuted(tmp_path: Path) -> None:
    bound, accounted = bound_and_account(tmp_path)
    assert 0.9 < accounted <= 1.0
    assert bound <= accounted


def test_a_run_whose_noise_is_missing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise.Seeded, "normal", lambda _, size: np.zeros(size, np.float32))
    bound, accounted = bound_and_account(tmp_path)
    assert bound > accounted


def test_a_run_that_does_not_clip_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_clipping(norms: torch.Tensor, bound: float) -> torch.Tensor:
        return torch.full_like(norms, bound if math.isfinite(bound) else 1.0)

    monkeypatch.setattr(released_sums, "clipping_factors", no_clipping)
    bound, accounted = bound_and_account(tmp_path)
    assert bound > accounted


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.slow
def test_the_bound_on_randomised_response_fails_as_rarely_as_it_says(epsilon: float) -> None:
    """Each coin is revealed with probability e^epsilon / (1 + e^epsilon), which is exactly epsilon-private."""
    rng, failures, largest = np.random.default_rng(1), 0, 0.0
    for _ in range(100):
        left_in = rng.random(CANARIES) < 0.5
        told = left_in ^ (rng.random(CANARIES) > 1 / (1 + math.exp(-epsilon)))
        bound, _, _ = lower_bound(told + 1e-6 * rng.random(CANARIES), left_in, delta=0.0)
        failures, largest = failures + (bound > epsilon), max(largest, bound)
    assert failures <= 10  # 5 are expected at most, with a deviation of 2.2
    assert largest > 0.7 * epsilon


def test_without_delta_the_p_value_is_that_of_coins() -> None:
    assert p_value(100, 20, 15, 0.0, 0.0) == pytest.approx(binom.sf(14, 20, 0.5))
    assert p_value(100, 20, 15, math.log(3), 0.0) == pytest.approx(binom.sf(14, 20, 0.75))


def test_delta_makes_right_guesses_less_telling() -> None:
    values = [p_value(1000, 100, 80, 0.5, delta) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert values == sorted(values)
    assert values[0] < 0.01 < 0.5 < values[-1]
