"""Statistics of a split by client: sizes, classes, and distance from the global distribution.

Also the classes without training samples, often a sign that labels are not numbered from 0 without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayfl.data.checks import are_class_labels
from rayfl.data.inputs import TextWindows
from rayfl.data.store import ShardStore
from rayfl.data.subsets import listed


@dataclass(frozen=True)
class SplitFacts:
    """A split in numbers; the last four are None if labels are not classes and `data.labels_by` makes none.

    Attributes:
        sizes: [clients] int64, training samples per client.
        held_out: Samples per client, [clients] int64, by name of the held-out set.
        num_classes: Number of classes.
        classes: [clients] int64, number of classes that each client has.
        distances: [clients] float64 in [0, 1], total variation distance (half the sum of absolute differences) between
            the class distribution of a client and that of all clients together.
        labels: [n] int64, class of each training sample, ordered by client.
    """

    sizes: np.ndarray
    held_out: dict[str, np.ndarray]
    num_classes: int | None
    classes: np.ndarray | None
    distances: np.ndarray | None
    labels: np.ndarray | None

    def largest_classes(self, number: int) -> Iterator[list[tuple[int, float]]]:
        """The most frequent classes of each client, with their shares of its training samples."""
        assert self.labels is not None
        for labels in np.split(self.labels, np.cumsum(self.sizes)[:-1]):
            classes, counts = np.unique(labels, return_counts=True)
            most = np.argsort(-counts, kind="stable")[:number]
            yield [(int(classes[place]), float(counts[place] / len(labels))) for place in most]


MOST_SHOWN = 200
"""Of more clients, a picture shows this many, evenly spread over their numbers."""

MOST_CLASSES = 1000
"""Of more classes, a picture could not show single ones."""

_AT_ONCE = 1 << 20
"""Samples whose labels are counted together."""


@dataclass(frozen=True)
class ShownSplit:
    """The part of a split that a picture shows: all clients, or some of many. Plain lists, for records.

    Attributes:
        num_clients: Number of all clients.
        clients: Numbers of the clients shown.
        samples: Their numbers of samples, by name: `training` and those of held-out sets.
        counts: Their training samples of each class; None if labels are not classes, or there are too many.
        overall: Training samples of each class of all clients; None likewise.
    """

    num_clients: int
    clients: list[int]
    samples: dict[str, list[int]]
    counts: list[list[int]] | None
    overall: list[int] | None

    @property
    def shares(self) -> np.ndarray:
        """[clients shown, classes] float64: share of each class in the training samples of a client."""
        counts = np.array(self.counts, np.float64)
        shares: np.ndarray = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return shares

    @property
    def classes(self) -> np.ndarray:
        """[clients shown] int64; see `SplitFacts`."""
        classes: np.ndarray = np.count_nonzero(np.array(self.counts), axis=1)
        return classes

    @property
    def distances(self) -> np.ndarray:
        """[clients shown] float64; see `SplitFacts`."""
        overall = np.array(self.overall, np.float64)
        distances: np.ndarray = 0.5 * np.abs(self.shares - overall / overall.sum()).sum(axis=1)
        return distances


def shown_split(store: ShardStore) -> ShownSplit:
    """Counts the samples and classes of at most `MOST_SHOWN` clients.

    Takes no more memory for a million clients than their sizes do: labels of all clients are counted a part at a time.
    """
    shards, sizes = store.train_shards, store.train_shards.sizes
    clients = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_SHOWN)).round().astype(int))
    samples = {"training": sizes[clients].tolist()}
    for name, part in store.held_out.items():
        if part.shards is not None:
            samples[name] = part.shards.sizes[clients].tolist()
    counts = overall = None
    if (found := _labels(store)) is not None and found[1] <= MOST_CLASSES:
        labels, number = found
        counts = [np.bincount(labels[shards[client]].astype(np.int64), minlength=number).tolist() for client in clients]
        total = np.zeros(number, np.int64)
        for start in range(0, len(shards.rows), _AT_ONCE):
            total += np.bincount(labels[shards.rows[start : start + _AT_ONCE]].astype(np.int64), minlength=number)
        overall = total.tolist()
    return ShownSplit(len(sizes), clients.tolist(), samples, counts, overall)


def split_facts(store: ShardStore) -> SplitFacts:
    """Computes the statistics of a split, by the classes used for partitioning."""
    sizes = store.train_shards.sizes
    held_out = {name: part.shards.sizes for name, part in store.held_out.items() if part.shards is not None}
    if (found := _classes(store)) is None:
        return SplitFacts(sizes, held_out, None, None, None, None)
    labels, num_classes = found
    overall = np.bincount(labels, minlength=num_classes) / len(labels)
    of_pair, label, counts = _counts(sizes, labels, num_classes)
    share = counts / sizes[of_pair]
    more = np.abs(share - overall[label]) - overall[label]
    distances = 0.5 * (1 + np.bincount(of_pair, weights=more, minlength=len(sizes)))
    classes = np.bincount(of_pair, minlength=len(sizes))
    return SplitFacts(sizes, held_out, num_classes, classes, distances.clip(0, 1), labels)


def main_classes(store: ShardStore) -> np.ndarray | None:
    """[clients] int64: the most frequent class of each client, the lowest of several; None without classes."""
    if (found := _classes(store)) is None:
        return None
    owner, label, counts = _counts(store.train_shards.sizes, *found)
    order = np.lexsort((label, -counts, owner))
    _, first = np.unique(owner[order], return_index=True)
    return label[order][first]


def _classes(store: ShardStore) -> tuple[np.ndarray, int] | None:
    """The class of each training sample, [n] int64 ordered by client, and the number of classes; None without any."""
    if (found := _labels(store)) is None:
        return None
    labels, num_classes = found
    return labels[store.train_shards.rows].astype(np.int64, copy=False), num_classes


def _labels(store: ShardStore) -> tuple[np.ndarray, int] | None:
    """The class of each row of the training samples, and the number of classes; None without any."""
    labels, num_classes = store.train.y, store.num_classes
    if store.made_classes is not None:
        return store.made_classes, int(store.made_classes.max()) + 1
    return None if num_classes is None or not _are_known_classes(labels, num_classes) else (labels, num_classes)


def _counts(sizes: np.ndarray, labels: np.ndarray, num_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Client, class and number of samples, for the classes that each client has.

    With a million clients and hundreds of classes, most counts would be zero.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    pairs, counts = np.unique(owner * num_classes + labels, return_counts=True)
    return pairs // num_classes, pairs % num_classes, counts


def empty_classes(store: ShardStore) -> str:
    """Describes in one line the classes without training samples and a possible remedy.

    Returns:
        "" if there are none, or if labels are not classes, are symbols of a text, which need not contain all, or are
        loaded later.
    """
    labels, classes = store.train.y, store.num_classes
    if not _are_known_classes(labels, classes) or isinstance(store.train.x, TextWindows):
        return ""
    missing = np.flatnonzero(np.bincount(labels.astype(np.int64, copy=False)) == 0)
    if not len(missing):
        return ""
    remedy = (
        "if labels count from 1, subtract 1"
        if missing.tolist() == [0]
        else "unless intended, number them without gaps, for example with numpy.unique(labels, return_inverse=True)"
    )
    plural = "es" if len(missing) > 1 else ""
    return f"no training samples of class{plural} {listed(missing)}, of {classes} numbered from 0; {remedy}"


def _are_known_classes(labels: Any, num_classes: int | None) -> bool:
    return isinstance(labels, np.ndarray) and are_class_labels(labels, num_classes)
