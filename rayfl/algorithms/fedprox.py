"""FedProx: a proximal term keeps local models near the global one.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, eq. 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat

from rayfl.algorithms.penalty import Penalty
from rayfl.local.requests import Affine

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext


class Proximal(Penalty):
    """Adds mu / 2 * ||w - w_received||^2 to every local objective; mu = 0 is FedAvg.

    Example-level DP (`local.dp`): the term does not depend on samples, so it is added after clipping and noise and is
    free.

    Attributes:
        mu: Weight of the term, at least 0. CyclicFL uses 0.01, FedBug and FedDyn's experiments 1e-4, CoPreFL 1.
    """

    name: str = "proximal"
    mu: NonNegativeFloat = 0.01

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine:
        return Affine(quadratic=self.mu, centre=start[: client.num_params])
