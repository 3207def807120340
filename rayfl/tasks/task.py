"""What every task is: the loss of a batch, what labels and outputs look like, and the metrics that are reported.

The module and those of rayfl's tasks load PyTorch only where they compute, so that the server may build a task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rayfl.component import Component
from rayfl.config.section import Named
from rayfl.errors import DataError
from rayfl.local.objective import nonzero

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.config.local import Local
    from rayfl.local.context import ClientContext
    from rayfl.local.evaluation_batch import EvaluationBatch
    from rayfl.local.objective import Reduction
    from rayfl.local.state import Declaration
    from rayfl.local.training_batch import TrainingBatch

Kind = Literal["multiclass", "multilabel"]
"""What torchmetrics calls a kind of classification."""


class Task(Component, ABC):
    """What is learned; its fields are the keys of `[task]`.

    Attributes:
        default_metrics: What is reported unless `evaluation.metrics` says otherwise; the first is the headline.
        kind: The kind of classification, for metrics that have one.
        class_dimension: The dimension of the outputs that counts the classes.
        views: How many independently augmented versions of every training batch there are; one, unless the objective
            compares several. `data.views` gives each its own augmentations.
        evaluation_views: How many augmented versions of every evaluated batch `evaluated` reads beside the plain one;
            they are augmented as the first views of training batches, and the same in every evaluation.
        reads_features: Whether the objective reads `TrainingBatch.features`, or `evaluated` those of its batch, so that
            the network must declare them.
        has_loss: Whether test samples have a loss (`loss`); where they have none, metrics alone score them.
        per_sample: Whether the loss of a batch is made of losses of single samples, which q-FFL and DP-SGD need.
    """

    default_metrics: ClassVar[tuple[str, ...]]
    kind: ClassVar[Kind | None] = None
    class_dimension: ClassVar[int] = 1
    views: ClassVar[int] = 1
    evaluation_views: ClassVar[int] = 0
    reads_features: ClassVar[bool] = False
    has_loss: ClassVar[bool] = True
    per_sample: ClassVar[bool] = True

    @abstractmethod
    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        """Width of the network's output, which a network gets as `num_classes`.

        Args:
            labels: All training labels, as the data has them.
            num_classes: How many classes they count; None where they are no classes.

        Raises:
            DataError: The labels do not fit the task.
        """

    @abstractmethod
    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        """The shapes that the network's outputs may have for a batch of targets; -1 is any length."""

    def check_network(self, network: nn.Module) -> None:
        """Called before the network is tried, by tasks that need modules of a certain kind.

        Raises:
            ScenarioError: It has none; says which network has.
        """

    def check_local(self, local: Local, sizes: np.ndarray) -> None:
        """Called with how a phase trains.

        Args:
            local: Its local training.
            sizes: [clients] int64, the samples that each trains on; of the pool in central training.

        Raises:
            ScenarioError: The task cannot be trained so.
        """

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        """The loss of a batch.

        Args:
            outputs: What the network returned.
            targets: The labels of the batch: int64, or float32 where the data has floating-point labels.
            reduction: `none` is [n], one value per sample; `sum` adds these up; `mean` divides the sum by `divisor`.
        """

    def total(self, targets: torch.Tensor) -> torch.Tensor | int:
        """What the mean loss is divided by: the number of samples, unless labels or classes weigh differently."""
        return len(targets)

    def divisor(self, targets: torch.Tensor) -> torch.Tensor | int:
        """`total`, but 1 where nothing is labelled: the sum of no losses is zero, and so is their mean."""
        return nonzero(self.total(targets))

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        """What a training step minimises, a scalar: the mean loss, unless the task needs more of the batch.

        Called once for every training batch, in order: what is kept in `client_state`, and modules that follow others
        (`Network.copies`), may be updated here, under `torch.no_grad()`.
        """
        return self.loss(batch.outputs, batch.y)

    def after_step(self, module: nn.Module, client: ClientContext) -> None:
        """Called after every training step, without gradients; modules that follow others may be updated here."""

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        """[n, ...] what `loss` and metrics are given as outputs where a model is evaluated: the network's, by default.

        Called in evaluation mode, without gradients.
        """
        return batch.outputs

    def client_state(self) -> Declaration:
        """What a client keeps for its objective from exchange to exchange, such as a queue, by name, with its scope."""
        return {}

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs as torchmetrics expects them: probabilities, or values."""
        return outputs

    @property
    def ignored_label(self) -> int | None:
        """The label that counts in no loss and no metric, if there is one."""
        return None

    def metrics(self) -> tuple[Named, ...]:
        """The default metrics, as a scenario would name them."""
        return tuple(Named(name=name) for name in self.default_metrics)


def count_classes(task: str, labels: np.ndarray, num_classes: int | None, ignored: int | None = None) -> int:
    """The number of classes of integer labels of any shape.

    Args:
        task: The task's name, for messages.
        labels: All training labels.
        num_classes: How many classes they count, where the data says so; else the largest label decides.
        ignored: The label that counts in no loss.

    Raises:
        DataError: The labels are no integers, or one of them is no class.
    """
    if labels.dtype.kind not in "ui":
        raise DataError(f"task '{task}' needs integer class labels; the data has {labels.dtype} labels")
    labelled = labels if ignored is None else labels[labels != ignored]
    if not labelled.size:
        raise DataError(f"task '{task}': all labels are {ignored}, which is ignored")
    low, high = int(labelled.min()), int(labelled.max())
    classes = high + 1 if num_classes is None else num_classes
    if low < 0 or high >= classes:
        raise DataError(f"task '{task}': labels run from {low} to {high}, allowed are 0 to {classes - 1}")
    return classes
