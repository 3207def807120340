"""Self-supervision by SimSiam: each of two views predicts the other's projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rayfl.tasks.self_supervised import SelfSupervised

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.local.evaluation_batch import EvaluationBatch
    from rayfl.local.objective import Reduction
    from rayfl.local.training_batch import TrainingBatch
    from rayfl.models.siamese import SiameseHead


class SimSiam(SelfSupervised):
    """-(cos(p1, z2) + cos(p2, z1)) / 2, without gradients through the projections z; labels are not read.

    For the model `siamese`. The loss of test samples is that of two augmented views, the same in every evaluation.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, algorithm 1.
    """

    evaluation_views: ClassVar[int] = 2
    per_sample: ClassVar[bool] = True
    has_loss: ClassVar[bool] = True
    model: ClassVar[str] = "siamese"
    compared: ClassVar[str] = "projections with predictions"

    name: str = "simsiam"

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), 2, -1]]

    def head_of(self, network: nn.Module) -> SiameseHead | None:
        from rayfl.models.siamese import SiameseHead

        return next((module for module in network.modules() if isinstance(module, SiameseHead)), None)

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        import torch

        both = [batch.module(view) for view in batch.views]
        return self.loss(torch.cat(both, dim=1), batch.y)

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        """[n, 4, width]: z1, p1, z2, p2 of two views."""
        import torch

        return torch.cat([batch.module(view) for view in batch.views], dim=1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        from torch.nn.functional import cosine_similarity

        z1, p1, z2, p2 = outputs.unbind(1)
        losses = -(cosine_similarity(p1, z2.detach()) + cosine_similarity(p2, z1.detach())) / 2
        if reduction == "none":
            return losses
        return losses.mean() if reduction == "mean" else losses.sum()
