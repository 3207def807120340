"""Attacks a private run, and compares the result with its accounted epsilon.

One run with many canaries (Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023):
the training samples of a client are canaries, each of which a fair coin includes or replaces by a null record. The
attacker knows the canaries and the trained model, and guesses the coins of which it is most certain. The number of
correct guesses bounds epsilon from below, with a confidence that covers all randomness, including that of the attack.

The canaries are as strong as possible: each has the largest gradient that clipping allows, along a separate axis, so
the attacker can read from every axis how far it moved.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import nn

import rayfl
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.models.network import Network

FAR = 1e4
"""Target of a canary, so far away that its gradient is always clipped."""


def canaries(number: int, coins_seed: int) -> Dataset:
    """One client with samples that are unit vectors with a far target, or null records: zeros, with no gradient.

    Args:
        number: Number of canaries.
        coins_seed: Seed that decides which of them are included.
    """
    left_in = coins(number, coins_seed)
    x = np.diag(left_in).astype(np.float32)
    samples = Samples(x, np.where(left_in, FAR, 0.0).astype(np.float32))
    owner = np.zeros(number, np.int64)
    shards = NaturalClients(("audited",), Shards.by_owner(owner, 1), Shards.by_owner(owner[:2], 1))
    return Dataset("canaries", samples, samples.take(np.arange(2)), None, Provenance("arrays", "canaries"), shards)


def coins(number: int, seed: int) -> np.ndarray:
    """[number] bool: which canaries are included, each independently with probability 1/2."""
    drawn: np.ndarray = np.random.default_rng(seed).random(number) < 0.5
    return drawn


class Axes(Network):
    """A linear function without bias, initially zero: its gradient at a canary lies along the axis of the canary."""

    def __init__(self, num_outputs: int = 1, input_shape: tuple[int, ...] = (1000,)) -> None:
        super().__init__()
        self.weights = nn.Linear(input_shape[0], num_outputs, bias=False)
        nn.init.zeros_(self.weights.weight)
        self.ordered_modules, self.feature_layer = ("weights",), "weights"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.weights(x)
        return output


def audited_run(number: int, epsilon: float, delta: float, seed: int, out: Path) -> tuple[np.ndarray, float]:
    """Trains privately on canaries.

    Args:
        number: Number of canaries.
        epsilon: Target epsilon of the run.
        delta: Delta of the run.
        seed: Seed of coins, noise and batches.
        out: Where to write the records of the run.

    Returns:
        [number] the movement along each axis, and the epsilon that the run reports.
    """
    private = {"target_epsilon": epsilon, "max_grad_norm": 1.0, "delta": delta}
    scenario: dict[str, Any] = {
        "seed": seed,
        "data": {
            "name": "rayfl.studies.analysis.audit_privacy:canaries",
            "options": {"number": number, "coins_seed": seed},
        },
        "task": "regression",
        "model": "rayfl.studies.analysis.audit_privacy:Axes",
        "phases": [
            {
                "name": "audited",
                "rounds": 2,
                "cohort": 1,
                "local": {"epochs": 2, "batch_size": number // 10, "lr": 1.0, "dp": private},
            }
        ],
        "evaluation": {"every": 2},
    }
    result = rayfl.run(scenario, backend="inline", out=out, quiet=True)
    (weights,) = result.state_dict.values()
    return weights.flatten().double().numpy(), float(result.metrics["epsilon"].to_pylist()[-1])


def lower_bound(
    moved: np.ndarray, left_in: np.ndarray, delta: float, confidence: float = 0.95
) -> tuple[float, int, int]:
    """Bounds epsilon: with this confidence the run is not (epsilon, delta)-private for any smaller epsilon.

    The attack guesses the coins of equally many axes with the largest and the smallest movement, for several numbers of
    guesses that are fixed in advance. The confidence is divided among these numbers, so the best of them is valid.

    Args:
        moved: [number] the movement along each axis.
        left_in: [number] bool, the coins.
        delta: The delta at which epsilon is bounded.
        confidence: Probability that the bound holds.

    Returns:
        The bound, the number of guesses behind it, and the number of correct ones.
    """
    number, order = len(moved), np.argsort(-moved, kind="stable")
    tried = sorted({min(2 * round(share * number / 2), number) for share in (0.02, 0.1, 0.3, 1.0)})
    failure, best = (1 - confidence) / len(tried), (0.0, tried[0], 0)
    for guesses in tried:
        half = guesses // 2
        right = int(left_in[order[:half]].sum() + (~left_in[order[number - half :]]).sum())
        best = max(best, (_smallest_epsilon(number, 2 * half, right, delta, failure), 2 * half, right))
    return best


def p_value(number: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """A bound on the probability that so many guesses are correct for a private run (Theorem 5.2 there).

    With delta = 0 the number of correct guesses is at most that of `guesses` coins that each land right with
    probability e^epsilon / (1 + e^epsilon). With probability delta a run may fail altogether: a failure that raises the
    count by i, above a threshold that it would have missed by less, has a mass of at most 2 number delta, spread over
    the possible values of i.
    """
    chance = 1 / (1 + math.exp(-epsilon))
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, chance))
    lifted = float(np.max(below / np.arange(1, right + 1), initial=0.0))
    return min(1.0, float(binom.sf(right - 1, guesses, chance)) + 2 * number * delta * lifted)


def _smallest_epsilon(number: int, guesses: int, right: int, delta: float, failure: float) -> float:
    """The largest epsilon that the number of correct guesses refutes, to 1e-3; 0 if it refutes none."""
    low, high = 0.0, 50.0
    if p_value(number, guesses, right, low, delta) > failure:
        return 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(number, guesses, right, middle, delta) <= failure else (low, middle)
    return low


def main() -> int:
    """Runs the audit from the command line.

    Returns:
        Exit status 0 if the bound is not above the accounted epsilon, else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.studies.analysis.audit_privacy", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--canaries", type=int, default=2000, help="number of canaries (default: 2000)")
    parser.add_argument("--epsilon", type=float, default=1.0, help="target epsilon of the run (default: 1)")
    parser.add_argument("--delta", type=float, default=1e-5, help="delta of the run (default: 1e-5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of coins, noise and batches (default: 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rayfl-") as folder:
        moved, accounted = audited_run(options.canaries, options.epsilon, options.delta, options.seed, Path(folder))
    left_in = coins(options.canaries, options.seed)
    bound, guesses, right = lower_bound(moved, left_in, options.delta)
    print(json.dumps({"accounted": accounted, "lower_bound": bound, "guesses": guesses, "right": right}))
    return 0 if bound <= accounted else 1


if __name__ == "__main__":
    sys.exit(main())
