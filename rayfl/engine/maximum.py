"""Elementwise maxima over many clients, which are exact and therefore do not depend on the order."""

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
            name: Name of the vectors, for error messages.
        """
        self._name = name
        self._largest: Tensor | None = None

    def add(self, values: Tensor) -> None:
        """Includes one more vector.

        Args:
            values: [n] float32 or float64, finite.

        Raises:
            NotFiniteError: A value is NaN or infinite.
            SumRangeError: The vector differs in length from the others.
        """
        # the maximum of -0.0 and 0.0 may be either; adding 0.0 turns both into 0.0
        values = values.detach().double() + 0.0
        if self._largest is not None and values.shape != self._largest.shape:
            raise SumRangeError(
                f"its '{self._name}' has {values.numel()} values, but those of other clients have "
                f"{self._largest.numel()}"
            )
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
        name: Name of the vectors, for error messages.
        parts: The result of `Maximum.partial` on each host, in any order.

    Raises:
        SumRangeError: The parts have different lengths.
    """
    lengths = sorted({len(part) for part in parts})
    if len(lengths) > 1:
        raise SumRangeError(f"clients answered with different numbers of values in '{name}': {lengths}")
    largest: np.ndarray = np.max(np.stack(parts), axis=0)
    return largest
