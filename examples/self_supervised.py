"""SimSiam on unlabelled images, then classification with the same encoder: two tasks and networks in one scenario.

    rayfl run examples/self_supervised.toml

Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, algorithm 1.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from rayfl.local import EvaluationBatch, TrainingBatch
from rayfl.models import Network
from rayfl.tasks import Classification


def encoder() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 64), nn.ReLU())


class Siamese(nn.Module):
    """Encoder, projector and predictor; its outputs are embeddings of `num_classes` values."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.encoder, self.projector = encoder(), nn.Linear(64, num_classes)
        self.predictor = nn.Sequential(nn.Linear(num_classes, 16), nn.ReLU(), nn.Linear(16, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        embeddings: torch.Tensor = self.projector(self.encoder(x))
        return embeddings


class Classifier(Network):
    """The same encoder and a linear head."""

    ordered_modules = ("encoder", "head")
    feature_layer = "head"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder(), nn.Linear(64, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(x))
        return logits


class SimSiam(Classification):
    """Two augmented views of a sample predict each other's embedding; labels only set the embedding width."""

    default_metrics: ClassVar[tuple[str, ...]] = ()
    views: ClassVar[int] = 2
    evaluation_views: ClassVar[int] = 2

    name: str = "simsiam"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self._distances(batch).mean()

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        return self._distances(batch)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return outputs if reduction == "none" else outputs.sum() if reduction == "sum" else outputs.mean()

    def _distances(self, batch: TrainingBatch | EvaluationBatch) -> torch.Tensor:
        predictor = batch.module.get_submodule("predictor")
        one, other = (batch.module(x) for x in batch.views)
        pairs = (predictor(one), other.detach()), (predictor(other), one.detach())
        return torch.stack([-F.cosine_similarity(guess, target) for guess, target in pairs]).mean(dim=0)
