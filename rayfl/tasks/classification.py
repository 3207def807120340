"""One class per sample."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat

from rayfl.data.checking import how_to_number
from rayfl.errors import DataError
from rayfl.tasks.task import Kind, Task, count_classes

if TYPE_CHECKING:
    import torch

    from rayfl.local.objective import Reduction


class Classification(Task):
    """Cross-entropy between logits [n, classes] and integer labels [n]; one class per sample.

    Attributes:
        label_smoothing: Share of every label that is spread over all classes, from 0 to below 1.
        class_weights: Weight of each class in the loss, above 0. The loss is divided by the sum of the weights in a
            batch, as in torch.nn.CrossEntropyLoss. By default all classes weigh the same.

    Raises:
        DataError: In `num_outputs`, if the labels are not integers [n], all are equal, or `class_weights` has another
            length than the data has classes.

    Example:
        >>> import torch
        >>> from rayfl.tasks import Classification
        >>> logits, labels = torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1])
        >>> Classification(label_smoothing=0.1).loss(logits, labels)
        tensor(0.6931)
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    kind: ClassVar[Kind | None] = "multiclass"

    name: str = "classification"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    class_weights: tuple[PositiveFloat, ...] | None = None

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        if labels.ndim != 1 or num_classes is None:
            raise DataError(
                f"task '{self.name}' needs integer class labels [n]; the data has {labels.dtype} labels of shape "
                f"{list(labels.shape)}{how_to_number(labels)}"
            )
        classes = count_classes(self.name, labels, num_classes)
        if labels.min() == labels.max():
            raise DataError(
                f"task '{self.name}': all {len(labels):,} training labels are {labels[0]}, and a single class leaves "
                "nothing to learn: provide samples of at least two classes, choose more with data.classes, or use "
                "another task"
            )
        if self.class_weights is not None and len(self.class_weights) != classes:
            raise DataError(
                f"task.class_weights: {len(self.class_weights)} weights, but the data has {classes} classes"
            )
        return classes

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), num_outputs]]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        import torch.nn.functional as F

        weight = None if self.class_weights is None else _on_device(self.class_weights, outputs.device)
        return F.cross_entropy(outputs, targets, weight, reduction=reduction, label_smoothing=self.label_smoothing)

    def total(self, targets: torch.Tensor) -> torch.Tensor | int:
        if self.class_weights is None:
            return len(targets)
        return _on_device(self.class_weights, targets.device)[targets].sum()

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.softmax(dim=1)


@lru_cache(maxsize=8)
def _on_device(weights: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """The weights on a device; copied once, since copying to a GPU in every step would wait for it."""
    import torch

    with torch.inference_mode(False):  # training reuses the tensor even if evaluation created it
        return torch.tensor(weights, device=device)
