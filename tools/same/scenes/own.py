"""The data and networks of the scenes: two small sources and two small networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from rayfl.data import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.models import Network

SIZES = (5, 9, 14, 7, 16, 6, 11, 8, 13, 10, 12, 4)
CLASSES = 3


def people() -> Dataset:
    """Points in four dimensions of twelve clients, each of which labels them in its own way."""
    rng = np.random.default_rng(3)
    taste = rng.normal(size=(len(SIZES), 4, CLASSES))

    def drawn(owner: np.ndarray) -> Samples:
        x = rng.normal(size=(len(owner), 4)).astype(np.float32)
        return Samples(x, np.einsum("ni,nic->nc", x, taste[owner]).argmax(axis=1))

    return _owned("people", drawn, SIZES)


def images() -> Dataset:
    """Noise of 8 x 8 pixels in two colours, of six clients; the brightest third decides the class."""
    rng = np.random.default_rng(5)

    def drawn(owner: np.ndarray) -> Samples:
        x = rng.integers(0, 256, (len(owner), 8, 8, 2), dtype=np.uint8)
        return Samples(x, x[:, :6].reshape(len(owner), CLASSES, -1).astype(np.int64).sum(axis=2).argmax(axis=1))

    return _owned("images", drawn, SIZES[2:8])


def _owned(name: str, drawn: object, sizes: Sequence[int]) -> Dataset:
    assert callable(drawn)
    number = len(sizes)
    train, test = np.repeat(np.arange(number), sizes), np.repeat(np.arange(number), 3)
    names = tuple(f"client {client}" for client in range(number))
    clients = NaturalClients(names, Shards.by_owner(train, number), Shards.by_owner(test, number))
    return Dataset(name, drawn(train), drawn(test), CLASSES, Provenance("arrays", "drawn"), clients)


class Dense(Network):
    """Three dense layers, with dropout."""

    ordered_modules: tuple[str, ...] = ("first", "second", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.first, self.second, self.read_out = nn.Linear(4, 7), nn.Linear(7, 5), nn.Linear(5, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(x))))
        logits: torch.Tensor = self.read_out(self.dropout(hidden))
        return logits


class Convolutional(Network):
    """A convolution with batch norm, and a dense layer."""

    ordered_modules: tuple[str, ...] = ("convolution", "norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5)
        self.read_out = nn.Linear(45, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.norm(self.convolution(x)))
        logits: torch.Tensor = self.read_out(nn.functional.max_pool2d(maps, 2).flatten(1))
        return logits
