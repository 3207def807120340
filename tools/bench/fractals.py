"""Fractal images on one core: pairs of small images, and long chains for large ones."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np

from rayfl.data.fractals.images import load
from tools.bench.table import Row

PAIRS, RENDERINGS = 256, 16
REPEATS = 7


def measure() -> list[Row]:
    """Measures pairs of 32 x 32 pixels, and objects of 100 000 points rendered at 112 x 112."""
    rng = np.random.default_rng(0)
    small = load("generated", 0, codes=1000, pairs=PAIRS, test_images=1).train.x
    large = load("generated", 0, codes=1000, pairs=1, test_images=1, objects=1, size=224, points=100_000).train.x
    rows, chosen = np.arange(PAIRS), np.arange(RENDERINGS)
    return [
        _row("fractals: pairs of 32 x 32, 1 000 points, 2 objects", "pairs/s", 2000, PAIRS,
             lambda: small.render_views(rows, [rng] * 2)),
        _row("fractals: objects of 112 x 112, 100 000 points", "objects/s", 150, RENDERINGS,
             lambda: large.objects(chosen, rng)),
    ]  # fmt: skip


def _row(name: str, unit: str, target: float, count: int, draw: Callable[[], object]) -> Row:
    seconds = []
    for _ in range(REPEATS):
        begun = process_time()
        draw()
        seconds.append(process_time() - begun)
    detail = f"{count} in {min(seconds):.3f} to {max(seconds):.3f} s of one core"
    return Row(name, count / float(np.median(seconds)), unit, ">=", target, detail)
