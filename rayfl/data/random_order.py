"""Random orders of classes and natural clients, from which `data.classes` and `data.owners` select places."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from rayfl.config.subsets import Places
from rayfl.errors import DataError
from rayfl.streams import stream


def at_places(config: Places, purpose: str, number: int, described: str) -> np.ndarray:
    """Numbers at the given places of a random order: [config.number] int64 in 0..number-1.

    The order depends only on `config.order_seed`, `purpose` and `number`.

    Args:
        config: The places.
        purpose: Purpose of the random stream; also the key of [data], for the error.
        number: How many there are in total.
        described: The same in words, for the error: "cifar100 has 100 classes".

    Raises:
        DataError: A place is beyond the last.
    """
    if config.end > number:
        raise DataError(
            f"data.{purpose}.places: the last range ends at {config.end}, but {described}; choose at most {number}"
        )
    order = stream(config.order_seed, f"order of {purpose}").permutation(number)
    return np.concatenate([order[start:stop] for start, stop in config.places])


def listed(numbers: np.ndarray) -> str:
    """Ascending numbers in words: "0-3, 7, 9-12"."""
    runs = [list(run) for _, run in groupby(enumerate(numbers.tolist()), lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
