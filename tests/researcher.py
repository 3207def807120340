"""What a researcher brings along: data, networks, and parts of an algorithm; named by `tests.researcher:...`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import nn
from torch.optim import Optimizer

from rayfl.algorithms import Aggregation, CohortSampler, SamplingContext, Updates

Owned = dict[str, tuple[Any, np.ndarray, np.ndarray]]


def flowers(number: PositiveInt = 1200, gardens: PositiveInt = 12) -> Owned:
    """Four measures of three species; every garden's soil shifts them."""
    rng = np.random.default_rng(7)
    centres, soil = 2.0 * rng.normal(size=(3, 4)), 0.5 * rng.normal(size=(gardens, 4))

    def picked(many: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        species, garden = rng.integers(3, size=many), np.arange(many) % gardens
        return centres[species] + soil[garden] + rng.normal(size=(many, 4)), species, garden

    return {"train": picked(number), "test": picked(number // 4)}


def prices() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A linear price with noise of deviation 0.1."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(500, 5))
    y = x @ np.array([1.0, -2.0, 0.5, 0.0, 1.5]) + 0.1 * rng.normal(size=500)
    return x[:400], y[:400], x[400:], y[400:]


def reviews() -> dict[str, tuple[dict[str, np.ndarray], np.ndarray]]:
    """Sentences of up to 12 words of 50; it is a good one if it has more of the first ten than of the next ten."""
    rng = np.random.default_rng(9)

    def written(number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        tokens, length = rng.integers(50, size=(number, 12)), rng.integers(4, 13, size=number)
        mask = np.arange(12) < length[:, None]
        good = ((tokens < 10) & mask).sum(axis=1) > ((tokens >= 10) & (tokens < 20) & mask).sum(axis=1)
        return {"tokens": tokens, "mask": mask.astype(np.float32)}, good.astype(np.int64)

    return {"train": written(1500), "test": written(300)}


def pictures() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures of 32 x 32 pixels, in which one of three colours prevails."""
    rng = np.random.default_rng(10)
    y = rng.integers(3, size=72)
    x = rng.integers(0, 120, size=(72, 32, 32, 3))
    x[np.arange(72), :, :, y] += 100
    return x[:60].astype(np.uint8), y[:60], x[60:].astype(np.uint8), y[60:]


class Regressor(nn.Module):
    """A linear model; `num_classes` are the outputs."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.line = nn.Linear(5, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.line(x)
        return found


class Reader(nn.Module):
    """The mean of the words' vectors; its inputs have names."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, num_classes)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        summed = (self.words(tokens) * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        logits: torch.Tensor = self.head(summed)
        return logits


class SignSGD(Optimizer):
    """w <- w - lr sign(g)."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


class WithoutTheLongest(Aggregation):
    """The mean of all updates but the longest."""

    def combine(self, updates: Updates) -> np.ndarray:
        lengths = np.array([np.linalg.norm(vector) for vector in updates.vectors])
        return updates.weighted_mean(np.where(np.arange(len(updates)) == lengths.argmax(), 0.0, 1.0))


class RoundRobin(CohortSampler):
    """Every client before any comes again."""

    clients: PositiveInt

    def draw(self, context: SamplingContext) -> Sequence[int]:
        first = (context.round - 1) * self.clients
        return [(first + place) % len(context.sizes) for place in range(self.clients)]
