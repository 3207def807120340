"""FedDecorr: a penalty on correlated features keeps local models from collapsing to few dimensions.

Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning", ICLR 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat

from rayfl.algorithms.algorithm import Need
from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedDecorr(FedAvg):
    """CE + beta * penalty on the correlations of the features (what enters the network's feature layer) in the batch.

    scaling: `correlation`, the paper's: 1/d^2 ||R||_F^2 of the correlation matrix R, diagonal (a constant) included.
        `code`, the authors' code: 1/B * 1/(d (d - 1)) * sum over a != b of G_ab^2, where G = (B - 1) R is a sum over
        the batch of B; about B times as large.
    A batch of one example has no correlations: no penalty.
    """

    beta: NonNegativeFloat = 0.1  # the authors'; FedBug 0.01 in its paper, 0.001 in its code
    scaling: Literal["correlation", "code"] = "correlation"

    def needs(self) -> set[Need]:
        return super().needs() | {"features"}

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        features, logits = client.features(x)
        loss = cross_entropy(logits, y)
        return loss + self.beta * self.penalty(features) if len(x) > 1 else loss

    def penalty(self, features: torch.Tensor) -> torch.Tensor:
        """features: [B, d]; a scalar."""
        batch, dimensions = features.shape
        standardized = (features - features.mean(dim=0)) / (features.var(dim=0) + 1e-8).sqrt()
        products = standardized.T @ standardized
        if self.scaling == "correlation":
            return (products / (batch - 1)).square().mean()
        off_diagonal = products.square().sum() - products.diagonal().square().sum()
        return off_diagonal / (batch * dimensions * (dimensions - 1))
