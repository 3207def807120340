"""The low bits of a release reveal samples (Mironov, "On Significance of the Least Significant Bits", CCS 2012).

A canary's weight changes by its clipped gradient and noise, one step, divided by a power of two. Float noise leaves
gaps that depend on the value it was added to, so many weights are impossible with the canary and prove that it was left
out. On a lattice, every weight is possible either way.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rayfl
from rayfl.privacy.secure_noise import Lattice
from rayfl.studies.analysis.audit_privacy import coins

CANARIES, SEED = 1024, 5


def released(out: Path, **dp: Any) -> np.ndarray:
    """[canaries] float32: the noised sum of gradients of a run with one full batch."""
    local = {"epochs": 1, "batch_size": "full", "lr": 1.0, "dp": {"max_grad_norm": 1.0, "accountant": "rdp", **dp}}
    scenario = {
        "seed": SEED,
        "data": {
            "name": "rayfl.studies.analysis.audit_privacy:canaries",
            "options": {"number": CANARIES, "coins_seed": SEED},
        },
        "task": "regression",
        "model": "rayfl.studies.analysis.audit_privacy:Axes",
        "phases": [{"name": "p", "rounds": 1, "cohort": 1, "local": local}],
    }
    result = rayfl.run(scenario, backend="inline", out=out, console=Console(file=io.StringIO()))
    (weights,) = result.state_dict.values()
    return (-weights.flatten() * CANARIES).numpy().astype(np.float32)


def reachable(outputs: np.ndarray, contribution: float) -> np.ndarray:
    """Returns which outputs are a float32 sum of the contribution and some float32 nearby."""
    noise = (outputs.astype(np.float64) - np.float32(contribution)).astype(np.float32)
    tried, up, down = [noise], noise, noise
    for _ in range(4):
        up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(-np.inf))
        tried += [up, down]
    found: np.ndarray = np.any([np.float32(contribution) + value == outputs for value in tried], axis=0)
    return found


@pytest.fixture(scope="module")
def contribution(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The clipped contribution of a canary that is included, from a run without noise."""
    without = released(tmp_path_factory.mktemp("without"), noise_multiplier=0.0)
    (value,) = np.unique(without[coins(CANARIES, SEED)])
    return float(value)


def test_noise_in_floating_point_proves_canaries_absent(tmp_path: Path, contribution: float) -> None:
    outputs, left_in = released(tmp_path, noise_multiplier=1.0), coins(CANARIES, SEED)
    proved_out = ~reachable(outputs, contribution)
    assert proved_out[~left_in].mean() > 0.25
    assert not proved_out[left_in].any()


def test_secure_noise_proves_nothing(tmp_path: Path, contribution: float) -> None:
    outputs, left_in = released(tmp_path, noise_multiplier=1.0, secure=True), coins(CANARIES, SEED)
    held = outputs[np.abs(outputs) < 2]  # beyond, noise need not fit float32, whatever it is added to
    assert len(held) > 0.8 * CANARIES
    assert reachable(held, contribution).all()
    assert reachable(held, 0.0).all()
    # nor do the integers themselves: those of both kinds of canary fall into all classes alike
    lattice = Lattice(1.0, 1.0)
    steps = np.rint(outputs / lattice.step).astype(np.int64)
    assert np.array_equal((steps * lattice.step).astype(np.float32), outputs)
    near = np.abs(steps) < 2**24  # whose last bits float32 holds
    for modulus in (2, 3, 8):
        seen = [np.bincount(steps[near & kind] % modulus, minlength=modulus) for kind in (left_in, ~left_in)]
        shares = [counts / counts.sum() for counts in seen]
        assert np.abs(shares[0] - shares[1]).max() < 6 * np.sqrt(0.25 * (1 / seen[0].sum() + 1 / seen[1].sum()))
