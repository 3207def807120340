"""What local training needs to know of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from rayfl.local.training_batch import TrainingBatch

Reduction = Literal["mean", "sum", "none"]
"""How a loss is reduced: over the batch, or one value per sample."""


class Objective(Protocol):
    """The part of `rayfl.tasks.Task` that training reads, where each method is explained."""

    @property
    def reads_features(self) -> bool: ...

    def objective(self, batch: TrainingBatch) -> torch.Tensor: ...

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor: ...

    def total(self, targets: torch.Tensor) -> torch.Tensor | int: ...

    def divisor(self, targets: torch.Tensor) -> torch.Tensor | int: ...


def nonzero(total: torch.Tensor | int) -> torch.Tensor | int:
    """The same, but 1 instead of 0; of a tensor without waiting for its value."""
    return total + (total == 0)
