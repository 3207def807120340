"""Real-valued targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat, model_validator

from rayfl.config.section import check_idle
from rayfl.errors import DataError
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    import torch

    from rayfl.local.objective import Reduction


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
