"""Datasets that count reads, and the stores that rayfl builds from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from rayfl.config.data import Data
from rayfl.data.store import ShardStore, build_store
from tests.data.resolved import resolved

HERE = "tests.data.torch_datasets.scene"
RNG = np.random.default_rng(0)
N = 40
PIXELS = RNG.integers(0, 256, (N, 6, 5, 3), np.uint8)
VECTORS = RNG.normal(size=(N, 3)).astype(np.float32)
TEXTS = [RNG.integers(1, 9, 1 + row % 4) for row in range(N)]
LABELS = np.arange(N) % 3
TEST = slice(0, 12)


class Items(Dataset[Any]):
    """Items from a function of their number; `reads` counts them."""

    def __init__(self, item: Callable[[int], Any], number: int = N) -> None:
        self.item, self.number, self.reads = item, number, Counter[int]()

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        return self.item(index)


class WithTargets(Items):
    """Has an attribute with its labels, like the data sets of torchvision."""

    def __init__(self, item: Callable[[int], Any], number: int = N) -> None:
        super().__init__(item, number)
        self.targets = LABELS[:number].tolist()


RETURNED: dict[str, Any] = {}
"""The result of `source`, or a function that returns it; set by tests."""


def source(**_: int) -> Any:
    found = RETURNED["it"]
    return found() if callable(found) else found


def vector(row: int) -> Any:
    return torch.from_numpy(VECTORS[row]), int(LABELS[row])


def store(returned: Any, folder: Path, **data: Any) -> ShardStore:
    RETURNED["it"] = returned
    tables = {"name": f"{HERE}:source"} | data
    return build_store(resolved(Data.model_validate(tables)), 0, folder, folder)
