"""Your own PyTorch Dataset: the worker process that trains on an item reads it when a batch needs it.

    python examples/own_torch_dataset.py            # in this process, a few seconds
    python examples/own_torch_dataset.py ray        # on Ray, with bit-identical results

The scenario names a function that makes the Datasets. Every worker process calls it again, so no data is sent, but the
files or databases that it opens must exist on every machine, and it must return the same items in the same order each
time: seed random splits, and sort files. A Dataset is map-style, with `__getitem__` and `__len__`;
an item is (x, y), where x is a PIL image, an array, a tensor, or a dictionary of them for networks with several inputs.

rayfl needs all labels at the start: it uses the attribute `targets` or `labels` if there is one, and otherwise reads
all items once. Items must not be random: name augmentations in `data.augment`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

import rayfl

SHAPES = ("disc", "square", "ring")
SITES = 6


class Pictures(Dataset[tuple[Image.Image, int]]):
    """Drawn shapes; a real Dataset would open files in `__getitem__`."""

    def __init__(self, number: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.targets = rng.integers(0, len(SHAPES), number)
        self.radius = rng.integers(4, 8, number)
        self.colour = rng.integers(100, 256, (number, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        y, x = np.mgrid[-8:8, -8:8]
        distance = np.maximum(abs(x), abs(y)) if SHAPES[self.targets[index]] == "square" else np.hypot(x, y)
        inside = distance < self.radius[index]
        if SHAPES[self.targets[index]] == "ring":
            inside &= distance > self.radius[index] - 3
        return Image.fromarray(inside[..., None] * self.colour[index]), int(self.targets[index])


def pictures(number: int = 600) -> dict[str, Any]:
    """Returns sets of samples by name: "train", "test" and additional test sets.

    Each is a Dataset; (dataset, owners), with the owner of every item; (dataset, lists), with the indices of every
    client's items; or one Dataset per client: {"site_0": dataset, ...}.
    """
    train, split = Pictures(number, seed=0), {}
    for site, indices in enumerate(np.array_split(np.argsort(train.radius), SITES)):
        split[f"site_{site}"] = indices  # your own split: here, the last sites have the largest shapes
    return {"train": (train, split), "test": Pictures(200, seed=1)}


LOCAL = {"epochs": 2, "lr": 0.1, "momentum": 0.5, "batch_size": 20}
SCENARIO: dict[str, Any] = {
    "name": "own_torch_dataset",
    "data": {
        "name": "own_torch_dataset:pictures",
        "options": {"number": 600},
        "augment": ["flip"],
        "test_share": 0.2,
    },
    "model": "lenet5",
    "phases": [{"name": "federated", "rounds": 15, "cohort": SITES, "local": LOCAL}],
    "evaluation": {"every": 5, "per_client": True},
}


def main(backend: str = "inline", *overrides: str) -> rayfl.Result:
    """Runs the scenario; `clients.parquet` in its run folder has the names of the sites."""
    return rayfl.run(SCENARIO, overrides=overrides, backend="ray" if backend == "ray" else "inline")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
