"""Prediction of the next symbol in a sequence: language models over characters, words or tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rayfl.errors import DataError
from rayfl.tasks.task import Kind, Task, count_classes

if TYPE_CHECKING:
    import torch

    from rayfl.local.objective import Reduction


class NextSymbol(Task):
    """Cross-entropy of every symbol: logits [n, symbols] for labels [n], or [n, length, symbols] for [n, length].

    The mean is over the labelled positions of the whole batch, and zero if there are none.

    Attributes:
        ignore: The label of positions that are excluded from losses and metrics, such as padding.

    Raises:
        DataError: In `num_outputs`, if the labels are not integers [n] or [n, length], or are out of range.

    Example:
        >>> import torch
        >>> from rayfl.tasks import NextSymbol
        >>> logits, labels = torch.zeros(1, 3, 4), torch.tensor([[2, 0, -100]])
        >>> NextSymbol().loss(logits, labels), NextSymbol().total(labels)
        (tensor(1.3863), tensor(2))
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "perplexity")
    kind: ClassVar[Kind | None] = "multiclass"
    class_dimension: ClassVar[int] = -1

    name: str = "next_symbol"
    ignore: int = -100

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        if labels.ndim not in (1, 2):
            raise DataError(
                f"task '{self.name}' needs labels [n] or [n, length]; the data has labels of shape {list(labels.shape)}"
            )
        return count_classes(self.name, labels, num_classes, self.ignore)

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[*targets.shape, num_outputs]]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        import torch.nn.functional as F

        by_class = outputs.movedim(-1, 1)
        if reduction == "none":
            symbols = F.cross_entropy(by_class, targets, ignore_index=self.ignore, reduction="none")
            return symbols.reshape(len(targets), -1).sum(dim=1)
        summed = F.cross_entropy(by_class, targets, ignore_index=self.ignore, reduction="sum")
        return summed / self.divisor(targets) if reduction == "mean" else summed

    def total(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != self.ignore).sum()

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Returns probabilities with the symbols in dimension 1, where torchmetrics expects classes."""
        return outputs.movedim(-1, 1).softmax(dim=1)

    @property
    def ignored_label(self) -> int | None:
        return self.ignore
