"""What users bring, named in scenarios by import path: data, networks and an algorithm, good ones and broken ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import PositiveFloat
from torch import nn

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards

SHARD_SIZES = (5, 8, 13, 6, 9)
CLASSES = 3
SIDE = 6
MEAN, STD = 0.25, 0.5


def vectors(rows: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train_x, train_y, test_x, test_y): points on the plane, classified by the larger of two coordinates."""
    rng = np.random.default_rng(5)
    train_x, test_x = rng.normal(size=(rows, 2)), rng.normal(size=(40, 2))
    return train_x, train_x.argmax(axis=1), test_x, test_x.argmax(axis=1)


VECTORS = vectors()


def pictures(sizes: Sequence[int] = SHARD_SIZES) -> Dataset:
    """Images of noise by client, with two test images of each client; what stands where decides the class."""
    rng = np.random.default_rng(7)
    owner, test_owner = np.repeat(np.arange(len(sizes)), sizes), np.repeat(np.arange(len(sizes)), 2)
    train, test = _noise(rng, len(owner)), _noise(rng, len(test_owner))
    clients = NaturalClients(
        names=tuple(f"person {client}" for client in range(len(sizes))),
        train=Shards.by_owner(owner, len(sizes)),
        test=Shards.by_owner(test_owner, len(sizes)),
    )
    return Dataset("pictures", train, test, CLASSES, Provenance("arrays", "noise"), clients)


def _noise(rng: np.random.Generator, rows: int) -> Samples:
    x = rng.integers(0, 256, (rows, SIDE, SIDE, 1), dtype=np.uint8)
    thirds = x.reshape(rows, CLASSES, -1).astype(np.int64).sum(axis=2)
    return Samples(x, thirds.argmax(axis=1))


def pictures_with_a_client_without_any() -> Dataset:
    return pictures((5, 0, 8))


def grey_levels() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = pictures()
    return np.asarray(data.train.x), data.train.y, np.asarray(data.test.x), data.test.y


def grey_levels_normalized_by_hand() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """As `grey_levels`, but floating point: nothing is left to do."""
    train_x, train_y, test_x, test_y = grey_levels()
    scaled = [(x.astype(np.float32) / np.float32(255) - np.float32(MEAN)) / np.float32(STD) for x in (train_x, test_x)]
    return scaled[0], train_y, scaled[1], test_y


class Linear(nn.Module):
    """Logistic regression on inputs of any shape."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.read_out = nn.Linear(int(np.prod(input_shape)), num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(x.flatten(1))
        return logits


class SmallConvNet(nn.Module):
    """Two convolutions and a dense layer: 4-D weights, whose layout in the flat vector is not PyTorch's."""

    def __init__(self, num_classes: int, channels: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3), nn.ReLU(), nn.Conv2d(channels, 5, 3), nn.ReLU(), nn.Flatten()
        )
        self.read_out = nn.Linear(5 * (SIDE - 4) ** 2, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(self.layers(x))
        return logits


class FrozenNormNet(SmallConvNet):
    """SmallConvNet on normalised images; its batch norm stays in evaluation mode, as is common in fine-tuning."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.norm = nn.BatchNorm2d(1)

    def train(self, mode: bool = True) -> FrozenNormNet:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x))


class SpareHeadNet(SmallConvNet):
    """SmallConvNet with the head of another task."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.spare = nn.Linear(self.read_out.in_features, 2)


class RaisesInTraining(Linear):
    """Passes the trial before a run, on two samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) > 2:
            raise RuntimeError("the sensor is unplugged")
        return super().forward(x)


class OneLogitShort(Linear):
    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__(num_classes - 1, input_shape)


class CautiousServer(FedAvg):
    """FedAvg whose server goes a part of the way."""

    server_lr: PositiveFloat

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.model += (self.server_lr * answers.mean("delta")).astype(np.float32)
