"""Your own task: classification with the focal loss, which gives less weight to easy samples.

    cd examples && python -m rayfl.scenario femnist_fedavg --quick --backend inline task=own_task:Focal task.gamma=1.0

Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017. A task from scratch derives from `rayfl.tasks.Task`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat

from rayfl.tasks import Classification, Reduction

if TYPE_CHECKING:
    import torch


class Focal(Classification):
    """-(1 - p)^gamma log p, with the probability p of the correct class; gamma = 0 is cross-entropy."""

    gamma: NonNegativeFloat = 2.0

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        """For logits [n, classes] and labels [n]: one value per sample if `reduction` is "none", else a scalar."""
        cross_entropy = super().loss(outputs, targets, "none")
        losses = (1 - (-cross_entropy).exp()) ** self.gamma * cross_entropy
        match reduction:
            case "none":
                return losses
            case "sum":
                return losses.sum()
            case _:
                return losses.sum() / self.divisor(targets)
