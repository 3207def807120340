"""Lists of distinct codes, those that images are made of."""

from __future__ import annotations

import numpy as np


def draw_distinct(lists: np.ndarray, codes: int, rng: np.random.Generator, first: int = 0) -> None:
    """Fills lists [n, most] in place with codes that are distinct in each, uniform among those that are left.

    Args:
        lists: Integers; the columns before `first` are given.
        codes: Codes are 0 to codes - 1; at least as many as a list is long.
        rng: Draws them.
        first: The first column to fill.
    """
    for place in range(first, lists.shape[1]):
        drawn = rng.integers(codes - place, size=len(lists), dtype=np.int32)
        for earlier in np.sort(lists[:, :place], 1).T:
            drawn += drawn >= earlier  # counts the codes that are left
        lists[:, place] = drawn
