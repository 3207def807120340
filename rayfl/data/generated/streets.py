"""Generated street scenes as a stand-in for Cityscapes: sky, buildings, road and boxes of other classes, by city."""

from __future__ import annotations

import numpy as np

from rayfl.streams import stream

HEIGHT, WIDTH = 64, 128
ROAD, BUILDING, SKY = 0, 2, 10


def generate(seed: int, city: int, number: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [number, 64, 128, 3] uint8 of one city and their classes [number, 64, 128] uint8; edges are 255.

    Each class has one colour, and each city its own light.
    """
    colours = stream(seed, "generate", 0).integers(40, 216, (classes, 3))
    rng = stream(seed, "generate", 1 + city)
    light = rng.integers(-25, 26, 3)
    labels = np.empty((number, HEIGHT, WIDTH), np.uint8)
    for scene in labels:
        scene[:], horizon = BUILDING, rng.integers(16, 32)
        scene[: horizon // 2], scene[horizon + 16 :] = SKY, ROAD
        for _ in range(6):
            top, left = rng.integers(4, HEIGHT - 20), rng.integers(0, WIDTH - 24)
            high, wide = rng.integers(6, 20, 2)
            scene[top : top + high, left : left + wide] = rng.integers(classes)
    noise = rng.normal(0, 12, (number, HEIGHT, WIDTH, 3))
    images = (colours[labels] + light + noise).clip(0, 255).astype(np.uint8)
    labels[:, [0, -1]] = 255
    return images, labels
