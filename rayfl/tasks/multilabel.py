"""Any number of labels per sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rayfl.errors import DataError
from rayfl.tasks.task import Kind, Task

if TYPE_CHECKING:
    import torch

    from rayfl.local.objective import Reduction


class Multilabel(Task):
    """Binary cross-entropy of every label, from logits [n, labels]; labels [n, labels] are 0 or 1.

    A sample's loss is the mean over its labels.

    Attributes:
        weigh_labels: Whether a sample's positive labels weigh J / m times as much as its negative ones, where m of the
            J labels are positive, as in FPS's multi-label pre-training (Chen et al., ICLR 2023).

    Raises:
        DataError: In `num_outputs`, if the labels are not zeros and ones [n, labels].

    Example:
        >>> import torch
        >>> from rayfl.tasks import Multilabel
        >>> Multilabel().loss(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]]), reduction="none")
        tensor([0.6931, 0.6931])
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("macro_f1", "micro_f1")
    kind: ClassVar[Kind | None] = "multilabel"

    name: str = "multilabel"
    weigh_labels: bool = False

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        if labels.ndim != 2 or not _are_binary(labels):
            raise DataError(
                f"task 'multilabel' needs labels [n, labels] of zeros and ones; the data has {labels.dtype} labels of "
                f"shape {list(labels.shape)}"
            )
        return int(labels.shape[1])

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), num_outputs]]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        import torch.nn.functional as F

        weight = None
        if self.weigh_labels:
            weight = targets.shape[1] / targets.sum(dim=1, keepdim=True, dtype=outputs.dtype).clamp_min(1)
        if reduction == "mean":
            return F.binary_cross_entropy_with_logits(outputs, targets.float(), pos_weight=weight)
        losses = F.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none", pos_weight=weight)
        losses = losses.mean(dim=1)
        return losses.sum() if reduction == "sum" else losses

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.sigmoid()


def _are_binary(labels: np.ndarray) -> bool:
    """Whether all labels are 0 or 1; integer labels, of which there may be many, are not copied."""
    if labels.dtype.kind in "bui":
        return not labels.size or bool(labels.min() >= 0 and labels.max() <= 1)
    return bool(np.isin(labels, (0, 1)).all())
