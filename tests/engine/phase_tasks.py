"""Self-supervision and then supervision as one scenario: tasks, networks and metrics for the tests of such phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from rayfl.errors import DataError
from rayfl.local import EvaluationBatch, TrainingBatch
from rayfl.tasks import Metric, Reduction, Task
from tests.algorithms.scene import INPUTS

HERE = __name__
LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 4, "lr": 0.2}
PRETRAIN: dict[str, Any] = {
    "name": "pretrain",
    "rounds": 3,
    "cohort": 5,
    "local": LOCAL,
    "task": f"{HERE}:Rolled",
    "metrics": [{"name": f"{HERE}:guessed", "higher_is_better": True}],
}
FINETUNE: dict[str, Any] = {"name": "finetune", "rounds": 2, "cohort": 4, "local": LOCAL}


def tables(**changes: Any) -> dict[str, Any]:
    """Twelve clients on points in four dimensions; self-supervision, then FedAvg on the classes."""
    return {
        "name": "scene",
        "seed": 5,
        "data": {"name": "tests.algorithms.scene:people"},
        "model": "tests.algorithms.scene:TanhNet",
        "phases": [PRETRAIN, FINETUNE],
        "resources": {"hosts": 2},
    } | changes


class Rolled(Task):
    """Says by how many places a sample's coordinates were rolled, as others ask by how much a picture was rotated."""

    default_metrics: ClassVar[tuple[str, ...]] = ()
    per_sample: ClassVar[bool] = False

    name: str = "rolled"

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        return INPUTS

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), num_outputs]]

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        rolls = torch.arange(INPUTS, device=outputs.device).expand(len(outputs), -1)
        losses = F.cross_entropy(outputs.transpose(1, 2), rolls, reduction="none").mean(dim=1)
        return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self.loss(_of_every_roll(batch), batch.y)

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        return _of_every_roll(batch)


def _of_every_roll(batch: TrainingBatch | EvaluationBatch) -> torch.Tensor:
    """[n, rolls, guesses]."""
    return torch.stack([batch.module(batch.x.roll(places, dims=1)) for places in range(INPUTS)], dim=1)


def guessed(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs.argmax(dim=2) == torch.arange(INPUTS)).float().mean())


class Undirected(Metric):
    """It does not say whether more of it is better."""

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> Mapping[str, np.ndarray]:
        return {"sum": outputs.sum().cpu().numpy()}

    def value(self, state: Mapping[str, np.ndarray]) -> float:
        return float(state["sum"])


class Picky(Rolled):
    """Wants labels that the data lacks."""

    name: str = "picky"

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        raise DataError(f"needs boxes; the data has {labels.dtype} labels")


class Stranger(nn.Module):
    """Has nothing in common with `TanhNet`, and declares no feature layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.only = nn.Linear(INPUTS, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.only(x)
        return outputs
