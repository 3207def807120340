"""The noise multiplier of each client's private training, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PhaseNoise = float | np.ndarray | None
"""The noise multiplier of a phase: one for all clients, or float64 [clients]; None without `local.dp`."""


def noise_multiplier(noise: Sequence[PhaseNoise], phase: int, client: int) -> float | None:
    """The noise multiplier of a client, or of a pool of samples, which takes the largest of any client.

    Args:
        noise: By phase.
        phase: Number of the phase, from 0.
        client: Number of the client or pool.
    """
    given = noise[phase] if noise else None
    if given is None or isinstance(given, int | float):
        return given
    return float(given[client] if client < len(given) else given.max())
