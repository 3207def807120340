"""Small images of 130 clients, who have between 3 and 20 of them: several clients of one bucket, unequal updates."""

from __future__ import annotations

import numpy as np

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards

CLIENTS, CLASSES, SIDE = 130, 4, 16
COHORT = (0, 64, 128, 1, 65, 2, 3, 67)
"""Of the buckets of clients that keep state: three of one, two of another, one alone, and two of a fourth."""


def load() -> Dataset:
    """Noisy squares at one of four places."""
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(CLIENTS), 3 + np.arange(CLIENTS) * 7 % 18)
    test_owner = np.arange(CLIENTS)
    train, test = _images(rng, len(owner)), _images(rng, CLIENTS)
    names = tuple(f"client {client}" for client in range(CLIENTS))
    shards = NaturalClients(names, Shards.by_owner(owner, CLIENTS), Shards.by_owner(test_owner, CLIENTS))
    return Dataset("squares", train, test, CLASSES, Provenance("arrays", "squares"), shards)


def _images(rng: np.random.Generator, number: int) -> Samples:
    labels = rng.integers(CLASSES, size=number)
    x = rng.integers(0, 160, size=(number, SIDE, SIDE, 1))
    for image, label in zip(x, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] += 60
    return Samples(x.astype(np.uint8), labels)
