"""The samples of each epoch of local training, and their order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rayfl.config.local import Local
from rayfl.local.steps import step_size, steps_per_epoch, update_steps


def passes(
    local: Local, num_samples: int, order: np.random.Generator, classes: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yields the positions of each epoch's samples, in order; the last epoch ends with the last step.

    Args:
        local: Options whose numbers have been drawn (`rayfl.local.draws`).
        num_samples: Number of samples to train on.
        order: The training request's own generator.
        classes: integers [num_samples], for `sampling = "balanced"`.
    """
    remaining, per_epoch = update_steps(local, num_samples), steps_per_epoch(local, num_samples)
    chances = None if classes is None else balanced_chances(classes)
    while remaining:
        steps = min(remaining, per_epoch)
        yield _epoch(local, num_samples, order, chances)[: steps * step_size(local, num_samples)]
        remaining -= steps


def balanced_chances(classes: np.ndarray) -> np.ndarray:
    """Returns the probability of drawing each sample if all classes that occur are equally likely: float64 [n]."""
    _, places, counts = np.unique(classes, return_inverse=True, return_counts=True)
    chances: np.ndarray = 1 / (len(counts) * counts[places])
    return chances


def _epoch(local: Local, num_samples: int, order: np.random.Generator, chances: np.ndarray | None) -> np.ndarray:
    if chances is not None:
        return order.choice(num_samples, num_samples, p=chances)
    return order.permutation(num_samples) if local.shuffle else np.arange(num_samples)
