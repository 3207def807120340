"""FedProx: a proximal term keeps local models near the global one.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, eq. 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat

from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedProx(FedAvg):
    """Adds mu / 2 ||w - w_received||^2 to every local objective; mu = 0 is FedAvg."""

    mu: NonNegativeFloat = 0.01  # CyclicFL's; FedBug and FedDyn 1e-4, CoPreFL 1

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor:
        return (params - client.received[: len(params)]).mul_(self.mu)
