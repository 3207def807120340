"""Builds a data set from images with classes and, optionally, domains, and draws the test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.inputs import Array, taken

TEST_SHARE = 0.1
"""The default share of test images."""


@dataclass(frozen=True)
class ListedImages:
    """Image files with the class and the domain of each ("" if there are no domains)."""

    files: list[Path]
    classes: list[str]
    domains: list[str]


def drawn_for_testing(group: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """[n] bool: draws the rounded share of each group at random; at least one row of two or more, never all.

    Args:
        group: [n] integers, such as one per class and domain.
        share: Between 0 and 1, exclusive.
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
    """Builds a data set of images in their order; domains, if any, are its natural clients.

    Args:
        name: Name of the data set.
        images: [n, height, width, channels] uint8, in memory or on disk.
        label: [n] integers in 0..num_classes-1.
        domain: [n] integers, indices into `domains`.
        is_test: [n] bool.
        num_classes: Number of classes.
        domains: Names of the domains; empty or [""] if there are none.
        provenance: Where the images come from.
    """
    rows = [np.flatnonzero(~is_test), np.flatnonzero(is_test)]
    train, test = (Samples(taken(images, part), label[part].astype(np.int64)) for part in rows)
    natural = None
    if any(domains):
        shards = (Shards.by_owner(domain[part], len(domains)) for part in rows)
        natural = NaturalClients(tuple(domains), *shards)
    return Dataset(name, train, test, num_classes, provenance, natural)
