"""The part of a task that local training reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from rayfl.local.training_batch import TrainingBatch

Reduction = Literal["mean", "sum", "none"]
"""How a loss is reduced: `mean` or `sum` over the batch, or `none` for one value per sample.

You receive it as the argument `reduction` of `Task.loss`.
"""


class Objective(Protocol):
    """The part of `rayfl.tasks.Task` that training reads; `Task` documents each method."""

    @property
    def reads_features(self) -> bool: ...

    def objective(self, batch: TrainingBatch) -> torch.Tensor: ...

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor: ...

    def total(self, targets: torch.Tensor) -> torch.Tensor | int: ...

    def divisor(self, targets: torch.Tensor) -> torch.Tensor | int: ...


def nonzero(total: torch.Tensor | int) -> torch.Tensor | int:
    """Returns the total, with 0 replaced by 1, without synchronising with the GPU."""
    return total + (total == 0)
