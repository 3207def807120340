"""The base of tasks without labels: a network with its own head, and outputs that are not classes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.local.objective import Reduction


class SelfSupervised(Task):
    """A task that compares views of a sample with each other; labels are not read.

    Attributes:
        model: The registered model that has the head.
        compared: What is compared, for messages.
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("spread",)
    views: ClassVar[int] = 2
    per_sample: ClassVar[bool] = False
    has_loss: ClassVar[bool] = False
    model: ClassVar[str]
    compared: ClassVar[str]

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        return 1

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), -1]]

    @abstractmethod
    def head_of(self, network: nn.Module) -> nn.Module | None:
        """Returns the head module that the task needs; None if the network has none."""

    def check_network(self, network: nn.Module) -> None:
        if self.head_of(network) is None:
            raise ScenarioError(
                f"task '{self.name}' compares {self.compared}, for which {type(network).__name__} has no modules; use "
                f'model = {{ name = "{self.model}", network = ... }}'
            )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        raise RayflError(f"task '{self.name}' has no per-sample loss: it compares {self.compared} within a batch")
