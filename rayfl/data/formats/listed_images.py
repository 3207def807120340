"""Images with a class each and, where there are any, a domain: which of them test, and all of them as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.inputs import Array, taken

TEST_SHARE = 0.1
"""What is held out to test on where nothing else is asked."""


@dataclass(frozen=True)
class ListedImages:
    """Image files, and for each its class and its domain ("" where there are none)."""

    files: list[Path]
    classes: list[str]
    domains: list[str]


def drawn_for_testing(group: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """[n] bool: of each group the rounded share of its rows, at random; of two or more at least one, never all.

    Args:
        group: [n] integers, such as one for every class in every domain.
        share: Above 0 and below 1.
        rng: Random generator.
    """
    chosen = np.zeros(len(group), bool)
    for number in np.unique(group):
        rows = np.flatnonzero(group == number)
        chosen[rng.permutation(rows)[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
    return chosen


def dataset_of_images(
    name: str,
    images: Array,
    label: np.ndarray,
    domain: np.ndarray,
    is_test: np.ndarray,
    num_classes: int,
    domains: Sequence[str],
    provenance: Provenance,
) -> Dataset:
    """The images as a data set, in their order; the domains, where there are any, are its natural clients.

    Args:
        name: Of the data set.
        images: [n, height, width, channels] uint8, in memory or on disk.
        label: [n] integers in 0..num_classes-1.
        domain: [n] integers, places in `domains`.
        is_test: [n] bool.
        num_classes: How many classes there are.
        domains: Their names; none, or [""], where there are no domains.
        provenance: Where the images came from.
    """
    rows = [np.flatnonzero(~is_test), np.flatnonzero(is_test)]
    train, test = (Samples(taken(images, part), label[part].astype(np.int64)) for part in rows)
    natural = None
    if any(domains):
        shards = (Shards.by_owner(domain[part], len(domains)) for part in rows)
        natural = NaturalClients(tuple(domains), *shards)
    return Dataset(name, train, test, num_classes, provenance, natural)
