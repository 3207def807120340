"""Fractal images on one core: pairs of small ones, and long chains for large ones."""

from __future__ import annotations

from time import process_time

import numpy as np

from rayfl.data.sources.fractals import load
from tools.bench.table import Row

PAIRS, RENDERINGS = 256, 16
REPEATS = 7


def measure() -> list[Row]:
    """Pairs of 32 x 32 pixels, and objects of 100 000 points, rendered at 112 x 112."""
    rng = np.random.default_rng(0)
    small = load("generated", 0, codes=1000, pairs=PAIRS, test_images=1).train.x
    large = load("generated", 0, codes=1000, pairs=1, test_images=1, objects=1, size=224, points=100_000).train.x
    rows, chosen = np.arange(PAIRS), np.arange(RENDERINGS)
    found = []
    for name, draw, count, unit, target in (
        ("fractals: pairs of 32 x 32, 1 000 points, 2 objects", lambda: small.render_views(rows, [rng] * 2), PAIRS,
         "pairs/s", 2000),
        ("fractals: objects of 112 x 112, 100 000 points", lambda: large.objects(chosen, rng), RENDERINGS,
         "objects/s", 150),
    ):  # fmt: skip
        seconds = []
        for _ in range(REPEATS):
            begun = process_time()
            draw()
            seconds.append(process_time() - begun)
        detail = f"{count} in {min(seconds):.3f} to {max(seconds):.3f} s of one core"
        found.append(Row(name, count / float(np.median(seconds)), unit, ">=", target, detail))
    return found
