"""How much noise private training adds to which client's gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Noise = float | np.ndarray | None
"""The noise multiplier of a phase: of all clients, or [clients]; None where samples are not private."""


def noise_multiplier(noise: Sequence[Noise], phase: int, client: int) -> float | None:
    """The noise multiplier of a client, or of a pool of samples, which has the largest of all clients.

    Args:
        noise: By phase.
        phase: Number of the phase, from 0.
        client: Number of the client or pool.
    """
    given = noise[phase] if noise else None
    if given is None or isinstance(given, int | float):
        return given
    return float(given[client] if client < len(given) else given.max())
