"""Elementwise maxima over many clients, which are exact, and hence free of order, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rayfl.engine.exact_sum import NotFiniteError, SumRangeError
from rayfl.local.finite import all_finite

if TYPE_CHECKING:
    from torch import Tensor


class Maximum:
    """A running elementwise maximum of vectors, on the device of the first one."""

    def __init__(self, name: str) -> None:
        """Starts without a vector.

        Args:
            name: Whose maximum it is, for error messages.
        """
        self._name = name
        self._largest: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Takes one more vector into account.

        Args:
            values: [n] float32 or float64, finite.

        Raises:
            NotFiniteError: A value is NaN or infinite.
            SumRangeError: The vector has another length than the others.
        """
        # of -0.0 and 0.0 either may be called the larger one; adding 0.0 leaves 0.0 alone
        values = values.detach().double() + 0.0
        if self._largest is not None and values.shape != self._largest.shape:
            lengths = f"{values.numel()} values, that of others {self._largest.numel()}"
            raise SumRangeError(f"its '{self._name}' has {lengths}")
        if not all_finite(values):
            raise NotFiniteError(self._name)
        self._largest = values if self._largest is None else self._largest.maximum(values)

    def partial(self) -> np.ndarray:
        """Returns the maximum over this host's clients, float64 [n]."""
        if self._largest is None:
            raise ValueError(f"nothing was added to '{self._name}'")
        return self._largest.cpu().numpy()


def combine_maxima(name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the elementwise maximum over the hosts' maxima, float64 [n].

    Args:
        name: Whose maximum it is, for error messages.
        parts: What `Maximum.partial` gave on each host, in any order.

    Raises:
        SumRangeError: The parts have different lengths.
    """
    lengths = sorted({len(part) for part in parts})
    if len(lengths) > 1:
        raise SumRangeError(f"clients answered with different numbers of values in '{name}': {lengths}")
    largest: np.ndarray = np.max(np.stack(parts), axis=0)
    return largest
