"""Noise that hosts load client by client, as large as a test asks, and the same in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfl.streams import stream

WIDTH, CLIENTS, CLASSES = 1000, 200, 10


class Noise:
    """Clients of equal size, 4 kB a row."""

    num_classes = CLASSES

    def __init__(self, mib: int) -> None:
        self._rows = mib * 2**20 // 4 // WIDTH // CLIENTS

    def sizes(self) -> np.ndarray:
        return np.full(CLIENTS, self._rows)

    def load(self, client: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.random((self._rows, WIDTH), np.float32), np.arange(self._rows) % CLASSES


def loaded(mib: int) -> dict[str, Any]:
    """Clients to load, and a few test samples."""
    return {"train": Noise(mib), "test": (np.zeros((CLASSES, WIDTH), np.float32), np.arange(CLASSES))}


def in_memory(mib: int) -> dict[str, Any]:
    """The same as arrays, for data seed 0."""
    source = Noise(mib)
    pairs = [source.load(client, stream(0, "client train", client)) for client in range(CLIENTS)]
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return loaded(mib) | {"train": (x, y, np.repeat(np.arange(CLIENTS), source.sizes()))}
