"""Random arrays for the measurements, which scenarios name by import path. Pixel values do not affect the times."""

from __future__ import annotations

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

IMAGE = (32, 32, 3)
CLASSES = 10


def images(train: int, test: int = 500) -> Arrays:
    """(train_x, train_y, test_x, test_y): images [n, 32, 32, 3] uint8 of ten classes."""
    rng = np.random.default_rng(0)
    return (
        rng.integers(0, 256, (train, *IMAGE), np.uint8),
        rng.integers(0, CLASSES, train),
        rng.integers(0, 256, (test, *IMAGE), np.uint8),
        rng.integers(0, CLASSES, test),
    )


def points(train: int) -> Arrays:
    """(train_x, train_y, test_x, test_y): points [n, 4] float32 of two classes."""
    rng = np.random.default_rng(0)
    x = rng.random((train, 4), np.float32)
    y = rng.integers(0, 2, train)
    return x, y, x[:100], y[:100]
