"""FedDecorr: a regulariser on correlated features keeps local models from collapsing to few dimensions.

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
    """Adds beta times a regulariser on the correlations of the features, the input of the network's feature layer.

    A batch of one sample has no correlations and adds nothing.

    Example-level DP (`local.dp`) is not supported: the correlations are those of a whole batch.

    Attributes:
        beta: Weight, at least 0. The authors use 0.1; FedBug uses 0.01 in its paper and 0.001 in its code.
        scaling: `correlation`: the paper's 1/d^2 ||R||_F^2 of the correlation matrix R, including the (constant)
            diagonal. `code`: the authors' code, 1/B * 1/(d (d - 1)) * sum over a != b of G_ab^2, where G = (B - 1) R is
            a sum over the batch of B samples; about B times as large.
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
        """Computes the regulariser without its weight, a scalar.

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
