"""The base class of tasks: the loss of a batch, the form of labels and outputs, and the metrics.

This module and those of rayfl's tasks load PyTorch only where they compute, so the server can build a task without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rayfl.config.component import Component
from rayfl.config.section import Named
from rayfl.data.checks import how_to_number
from rayfl.errors import DataError, ScenarioError
from rayfl.local.requests import nonzero

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.config.local import Local
    from rayfl.local.batches import EvaluationBatch, TrainingBatch
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import Reduction
    from rayfl.local.state import Declaration

Kind = Literal["multiclass", "multilabel"]
"""A kind of classification, in the terms of torchmetrics."""


class Task(Component, ABC):
    """A learning objective and its metrics; derive from it to write your own. Its fields are the keys of `[task]`.

    Attributes:
        default_metrics: Metrics that are reported unless `evaluation.metrics` says otherwise; the first is the
            headline. A name, or a table as in a scenario: a metric of your own that is the headline says whether higher
            is better, `{"name": "my.module:error", "higher_is_better": False}`.
        kind: The kind of classification, for metrics that need one.
        class_dimension: The dimension of the outputs that indexes the classes.
        views: Number of independently augmented versions of every training batch; 1 unless the objective compares
            several. `data.views` gives each its own augmentations.
        evaluation_views: Number of augmented versions of every evaluated batch that `evaluated` reads in addition to
            the plain one. They are augmented like the first views of training batches, and are the same in every
            evaluation.
        reads_features: Whether the objective reads `TrainingBatch.features`, or `evaluated` those of its batch; the
            network must then declare a feature layer.
        has_loss: Whether test samples have a loss (`loss`); otherwise only metrics evaluate them.
        per_sample: Whether the loss of a batch is composed of per-sample losses, which q-FFL and DP-SGD need.

    Example:
        >>> import torch
        >>> from rayfl.tasks import Task
        >>> class Absolute(Task):
        ...     name: str = "absolute"
        ...     default_metrics = ("mae",)
        ...
        ...     def num_outputs(self, labels, num_classes):
        ...         return 1
        ...
        ...     def output_shapes(self, targets, num_outputs):
        ...         return [[len(targets), 1]]
        ...
        ...     def loss(self, outputs, targets, reduction="mean"):
        ...         losses = (outputs.squeeze(1) - targets).abs()
        ...         return losses if reduction == "none" else getattr(losses, reduction)()
        >>> Absolute().loss(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
        tensor(2.)
    """

    default_metrics: ClassVar[tuple[str | Mapping[str, Any], ...]]
    kind: ClassVar[Kind | None] = None
    class_dimension: ClassVar[int] = 1
    views: ClassVar[int] = 1
    evaluation_views: ClassVar[int] = 0
    reads_features: ClassVar[bool] = False
    has_loss: ClassVar[bool] = True
    per_sample: ClassVar[bool] = True

    @abstractmethod
    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        """Returns the width of the network's output, which a network gets as `num_classes`.

        Args:
            labels: All training labels, as the data has them.
            num_classes: Number of classes; None if the labels are not classes.

        Raises:
            DataError: The labels do not fit the task.
        """

    @abstractmethod
    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        """Returns the shapes that the network's outputs may have for a batch of targets; -1 is any length."""

    def check_network(self, network: nn.Module) -> None:
        """Checks that the network has the modules that the task needs; called before the network is tried.

        Raises:
            ScenarioError: It does not; the message says which network does.
        """

    def check_local(self, local: Local, sizes: np.ndarray) -> None:
        """Checks that the task can be trained as a phase trains.

        Args:
            local: The phase's local training options.
            sizes: int64 [clients], the number of samples that each client trains on; that of the pool in central
                training.

        Raises:
            ScenarioError: The task cannot be trained this way.
        """

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        """Computes the loss of a batch.

        Args:
            outputs: The network's outputs.
            targets: The labels of the batch: int64, or float32 if the data has floating-point labels.
            reduction: `none`: [n], one value per sample. `sum`: their sum. `mean`: the sum divided by `divisor`.
        """

    def total(self, targets: torch.Tensor) -> torch.Tensor | int:
        """Returns the divisor of the mean loss: the number of samples, unless labels or classes have weights."""
        return len(targets)

    def divisor(self, targets: torch.Tensor) -> torch.Tensor | int:
        """Returns `total`, but 1 if nothing is labelled: the sum of no losses is zero, and so is their mean."""
        return nonzero(self.total(targets))

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        """Returns the objective of a training step, a scalar: the mean loss, unless the task needs more of the batch.

        Called once for every training batch, in order. You may update what is kept in `client_state`, and modules that
        follow others (`Network.copies`), under `torch.no_grad()`.
        """
        return self.loss(batch.outputs, batch.y)

    def after_step(self, module: nn.Module, client: ClientContext) -> None:
        """Called after every training step, without gradients; you may update modules that follow others here."""

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        """Returns the outputs for `loss` and metrics in an evaluation, [n, ...]; by default those of the network.

        Called in evaluation mode, without gradients.
        """
        return batch.outputs

    def client_state(self) -> Declaration:
        """Declares a client's state for its objective between exchanges, such as a queue, with its scope."""
        return {}

    def symbolic_state(self, network: nn.Module) -> Mapping[str, torch.Tensor]:
        """Returns what training leaves in `client_state`, with any values; an algorithm that reads it is planned so."""
        return {}

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Converts outputs to the form that torchmetrics expects: probabilities, or values."""
        return outputs

    @property
    def ignored_label(self) -> int | None:
        """The label that is excluded from losses and metrics, if there is one."""
        return None

    def metrics(self) -> tuple[Named, ...]:
        """Returns the default metrics as a scenario would name them.

        Raises:
            ScenarioError: The class has no `default_metrics`.
        """
        if not hasattr(self, "default_metrics"):
            raise ScenarioError(f"task '{self.name}' has no default_metrics; set them, or evaluation.metrics")
        return tuple(map(Named.model_validate, self.default_metrics))


def count_classes(task: str, labels: np.ndarray, num_classes: int | None, ignored: int | None = None) -> int:
    """Counts the classes of integer labels of any shape.

    Args:
        task: The task's name, for messages.
        labels: All training labels.
        num_classes: Number of classes, if the data says so; otherwise the largest label determines it.
        ignored: The label that is excluded from the loss.

    Raises:
        DataError: The labels are not integers, or one of them is out of range.
    """
    if labels.dtype.kind not in "ui":
        raise DataError(
            f"task '{task}' needs integer class labels; the data has {labels.dtype} labels{how_to_number(labels)}"
        )
    labelled = labels if ignored is None else labels[labels != ignored]
    if not labelled.size:
        raise DataError(f"task '{task}': all labels are {ignored}, which is ignored")
    low, high = int(labelled.min()), int(labelled.max())
    classes = high + 1 if num_classes is None else num_classes
    if low < 0 or high >= classes:
        raise DataError(f"task '{task}': labels run from {low} to {high}, allowed are 0 to {classes - 1}")
    return classes
