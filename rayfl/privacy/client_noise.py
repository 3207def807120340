"""Standard normal numbers for client-level privacy, from a stream of the scenario's or from the operating system."""

from __future__ import annotations

import numpy as np

from rayfl.privacy.noise import Secure


def standard_normal(stream: np.random.Generator | None, number: int) -> np.ndarray:
    """Draws standard normal numbers.

    Args:
        stream: Where from; None for the operating system's cryptographic source.
        number: How many.

    Returns:
        [number] float64.
    """
    return Secure().normal_in_float64(number) if stream is None else stream.standard_normal(number)
