"""Options of local training that are drawn for every client and round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rayfl.config.local import Choices, Local, Uniform


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
