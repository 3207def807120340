"""Tasks with labels: one class per sample, several labels, real values, a class per pixel, the next symbol."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from rayfl.config.section import check_idle
from rayfl.data.checks import how_to_number
from rayfl.errors import DataError
from rayfl.tasks.task import Kind, Task, count_classes

if TYPE_CHECKING:
    import torch

    from rayfl.local.requests import Reduction


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
        return outputs.double().softmax(dim=1)  # in float32, ones and ties above logits of 17


@lru_cache(maxsize=8)
def _on_device(weights: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """The weights on a device; copied once, since copying to a GPU in every step would wait for it."""
    import torch

    return torch.tensor(weights, device=device)


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
        return outputs.double().sigmoid()  # as in Classification


def _are_binary(labels: np.ndarray) -> bool:
    """Whether all labels are 0 or 1; integer labels, of which there may be many, are not copied."""
    if labels.dtype.kind in "bui":
        return not labels.size or bool(labels.min() >= 0 and labels.max() <= 1)
    return bool(np.isin(labels, (0, 1)).all())


class Regression(Task):
    """A distance between outputs and real-valued targets, both [n] or [n, d]; outputs [n, 1] also fit targets [n].

    A sample's loss is the mean over its d values.

    Attributes:
        distance: `squared`; `absolute`; or `huber`, half the squared distance up to `delta` and linear beyond.
        delta: The distance at which `huber` becomes linear, above 0, in the unit of the targets.

    Raises:
        DataError: In `num_outputs`, if the targets are not [n] or [n, d].

    Example:
        >>> import torch
        >>> from rayfl.tasks import Regression
        >>> Regression(distance="absolute").loss(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 2.0]))
        tensor(1.5000)
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("rmse", "mae")

    name: str = "regression"
    distance: Literal["squared", "absolute", "huber"] = "squared"
    delta: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _no_idle_options(self) -> Regression:
        check_idle(self, {"delta": self.distance != "huber"}, "without distance = 'huber'")
        return self

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        if labels.ndim not in (1, 2):
            raise DataError(f"task 'regression' needs targets [n] or [n, d]; the data has {list(labels.shape)}")
        return 1 if labels.ndim == 1 else int(labels.shape[1])

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), num_outputs], *([[len(targets)]] if targets.ndim == 1 else [])]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        distances = self._distances(outputs, targets.float())
        losses = distances.flatten(1).mean(dim=1) if distances.ndim > 1 else distances
        if reduction == "none":
            return losses
        return losses.sum() if reduction == "sum" else losses.mean()

    def _distances(self, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as F

        targets = targets.reshape(values.shape)
        if self.distance == "huber":
            return F.huber_loss(values, targets, reduction="none", delta=self.delta)
        if self.distance == "absolute":
            return F.l1_loss(values, targets, reduction="none")
        return F.mse_loss(values, targets, reduction="none")


class _Labelled(Task):
    """Cross-entropy of every element of an output, such as a pixel, but those with the label `ignore`."""

    kind: ClassVar[Kind | None] = "multiclass"

    ignore: int

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        import torch.nn.functional as F

        by_class = outputs.movedim(self.class_dimension, 1)
        if reduction == "none":
            each = F.cross_entropy(by_class, targets, ignore_index=self.ignore, reduction="none")
            return each.flatten(1).sum(dim=1) if each.ndim > 1 else each
        summed = F.cross_entropy(by_class, targets, ignore_index=self.ignore, reduction="sum")
        return summed / self.divisor(targets) if reduction == "mean" else summed

    def total(self, targets: torch.Tensor) -> torch.Tensor:
        return (targets != self.ignore).sum()

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Returns probabilities with the classes in dimension 1, where torchmetrics expects them."""
        return outputs.movedim(self.class_dimension, 1).softmax(dim=1)

    @property
    def ignored_label(self) -> int | None:
        return self.ignore


class Segmentation(_Labelled):
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


class NextSymbol(_Labelled):
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
