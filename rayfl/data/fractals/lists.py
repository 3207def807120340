"""Lists of distinct codes, from which images are composed."""

from __future__ import annotations

import numpy as np


def draw_distinct(lists: np.ndarray, codes: int, rng: np.random.Generator, first: int = 0) -> None:
    """Fills lists [n, most] in place with distinct codes, drawn uniformly from those not yet in the list.

    Args:
        lists: Integers; the columns before `first` are already set.
        codes: Number of codes, at least the length of a list; codes are 0 to codes - 1.
        rng: Random generator.
        first: The first column to fill.
    """
    for place in range(first, lists.shape[1]):
        drawn = rng.integers(codes - place, size=len(lists), dtype=np.int32)
        for earlier in np.sort(lists[:, :place], 1).T:
            drawn += drawn >= earlier  # skips codes already in the list
        lists[:, place] = drawn
