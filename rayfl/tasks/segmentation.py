"""One class per pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rayfl.errors import DataError
from rayfl.tasks.task import Kind, Task, count_classes

if TYPE_CHECKING:
    import torch

    from rayfl.local.objective import Reduction


class Segmentation(Task):
    """Cross-entropy of every labelled pixel, from logits [n, classes, height, width]; labels are [n, height, width].

    The mean is over the labelled pixels of the whole batch, and zero if there are none.

    Attributes:
        ignore: The label of pixels that are excluded from losses and metrics.

    Raises:
        DataError: In `num_outputs`, if the labels are not integers [n, height, width], or are out of range.

    Example:
        >>> import torch
        >>> from rayfl.tasks import Segmentation
        >>> labels = torch.tensor([[[0, 1], [255, 1]]])
        >>> Segmentation().loss(torch.zeros(1, 2, 2, 2), labels), Segmentation().total(labels)
        (tensor(0.6931), tensor(3))
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("mean_iou", "accuracy")
    kind: ClassVar[Kind | None] = "multiclass"

    name: str = "segmentation"
    ignore: int = 255

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        if labels.ndim != 3:
            raise DataError(
                f"task '{self.name}' needs labels [n, height, width]; the data has labels of shape {list(labels.shape)}"
            )
        return count_classes(self.name, labels, num_classes, self.ignore)

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), num_outputs, *targets.shape[1:]]]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        import torch.nn.functional as F

        if reduction == "none":
            pixels = F.cross_entropy(outputs, targets, ignore_index=self.ignore, reduction="none")
            return pixels.flatten(1).sum(dim=1)
        summed = F.cross_entropy(outputs, targets, ignore_index=self.ignore, reduction="sum")
        return summed / self.divisor(targets) if reduction == "mean" else summed

    def total(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != self.ignore).sum()

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.softmax(dim=1)

    @property
    def ignored_label(self) -> int | None:
        return self.ignore
