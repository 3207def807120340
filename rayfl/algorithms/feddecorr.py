"""FedDecorr: a penalty on correlated features keeps local models from collapsing to few dimensions.

Shi et al., "Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning", ICLR 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat

from rayfl.algorithms.penalty import Penalty

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import LossTerm
    from rayfl.local.training_batch import TrainingBatch


class Decorrelation(Penalty):
    """Adds beta times a penalty on the correlations of the features (what enters the network's feature layer).

    A batch of one sample has no correlations, hence no penalty.

    Attributes:
        beta: Weight; 0.1 is the authors', FedBug has 0.01 in its paper and 0.001 in its code.
        scaling: `correlation`, the paper's: 1/d^2 ||R||_F^2 of the correlation matrix R, diagonal (a constant)
            included. `code`, the authors' code: 1/B * 1/(d (d - 1)) * sum over a != b of G_ab^2, where G = (B - 1) R is
            a sum over the batch of B; about B times as large.

    Refused with `local.dp`: the correlations are of a whole batch.
    """

    name: str = "decorrelation"
    beta: NonNegativeFloat = 0.1
    scaling: Literal["correlation", "code"] = "correlation"

    def reads_features(self) -> bool:
        return True

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm:
        def weighted(batch: TrainingBatch) -> torch.Tensor:
            features = batch.features
            return self.beta * self.penalty(features) if len(features) > 1 else features.new_zeros(())

        return weighted

    def penalty(self, features: torch.Tensor) -> torch.Tensor:
        """The penalty without its weight, a scalar.

        Args:
            features: [B, d].
        """
        batch, dimensions = features.shape
        standardized = (features - features.mean(dim=0)) / (features.var(dim=0) + 1e-8).sqrt()
        products = standardized.T @ standardized
        if self.scaling == "correlation":
            return (products / (batch - 1)).square().mean()
        off_diagonal = products.square().sum() - products.diagonal().square().sum()
        return off_diagonal / (batch * dimensions * (dimensions - 1))
