"""What local training draws: the options that vary by client and round, and the order of each epoch's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rayfl.config.local import Choices, Local, Uniform
from rayfl.local.steps import step_size, steps_per_epoch, update_steps


def drawn(local: Local, stream: Callable[[str], np.random.Generator]) -> Local:
    """Returns the options of one client in one round, with all numbers drawn.

    Args:
        local: The phase's options.
        stream: Function from a purpose to the client's generator in this round. Every option has its own stream, so
            that drawing another option does not change the first.
    """
    return _with_numbers(local, lambda key, number: _draw(number, stream(f"local {key}")))


def typical(local: Local) -> Local:
    """Returns the options with the rounded mean of every number that is drawn, for planning."""
    return _with_numbers(local, lambda _, number: round(float(np.mean(_values(number)))))


def smallest(local: Local) -> Local:
    """Returns the options with the smallest value of every number that is drawn: the shortest client update."""
    return _with_numbers(local, lambda _, number: int(_values(number).min()))


def largest(local: Local) -> Local:
    """Returns the options with the largest value of every number that is drawn: the longest client update."""
    return _with_numbers(local, lambda _, number: int(_values(number).max()))


def _with_numbers(local: Local, number_of: Callable[[str, Uniform | Choices], int]) -> Local:
    given = {"epochs": local.epochs, "steps": local.steps}
    numbers = {key: number_of(key, value) for key, value in given.items() if isinstance(value, Uniform | Choices)}
    return local.model_copy(update=numbers) if numbers else local


def _draw(number: Uniform | Choices, rng: np.random.Generator) -> int:
    if isinstance(number, Uniform):
        return int(rng.integers(number.uniform[0], number.uniform[1], endpoint=True))
    return number.choices[int(rng.integers(len(number.choices)))]


def _values(number: Uniform | Choices) -> np.ndarray:
    return np.array(number.uniform if isinstance(number, Uniform) else number.choices)


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
