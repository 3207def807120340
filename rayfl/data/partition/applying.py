"""Calls the partitioner that a scenario names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rayfl.config.data import Data
from rayfl.config.section import Named
from rayfl.data import partitioners
from rayfl.data.checking import are_class_labels, how_to_number
from rayfl.data.dataset import NaturalClients, Samples, Shards
from rayfl.data.partition.checking import checked_shards
from rayfl.data.partition.labels_by import build_labeling
from rayfl.errors import ScenarioError
from rayfl.registry import asks_for, call_with_options
from rayfl.streams import stream

GIVEN = ("labels", "num_classes", "targets", "num_samples", "clients", "rng", "natural")
"""The arguments that a partitioner may declare; see `rayfl.data.partition`."""

_CLASSES = ("labels", "num_classes")


def partitioned(
    config: Data,
    partition: Named,
    train: Samples,
    classes: np.ndarray | None,
    natural: NaturalClients | None,
    seed: int,
    num_classes: int | None,
) -> Shards:
    """Partitions the training samples among the clients.

    Args:
        config: The scenario's data section.
        partition: The partition that it names, or the default for the data.
        train: The training samples, without those of the server.
        classes: The result of `partition_classes`.
        natural: The natural clients, if any.
        seed: The seed of the data.
        num_classes: Number of classes.

    Raises:
        ScenarioError: The object is not a partitioner, it needs classes but there are none, or `data.labels_by` has no
            effect.
        DataError: A user-defined partitioner did not return a partition.
    """
    partitioner = partitioners.resolve(partition.name)
    what = f"data.partition: '{partition.name}'"
    if not callable(partitioner):
        raise ScenarioError(f"{what} is an object of type {type(partitioner).__name__}, not a partitioner")
    if config.labels_by:
        _check_reads_classes(partitioner, partition)
    elif classes is None and _needs_classes(partitioner, partition):
        raise ScenarioError(
            f"{what} needs class labels, but these are {train.y.dtype}{list(train.y.shape)}; choose another partition, "
            f"such as 'iid', or set data.labels_by{how_to_number(train.y)}"
        )
    given = {
        "labels": classes,
        "num_classes": num_classes,
        "targets": train.y,
        "num_samples": len(train),
        "clients": config.clients,
        "rng": stream(seed, "partition"),
        "natural": natural,
    }
    found = call_with_options(partitioner, partition.options, given, "data.partition")
    return found if partition.name in partitioners else checked_shards(found, len(train), config.clients, what)


def partition_classes(config: Data, train: Samples, num_classes: int | None) -> tuple[np.ndarray | None, int | None]:
    """The classes for partitioning, [n] int64, and their number, from `data.labels_by` or from class labels.

    Raises:
        ScenarioError: The function of `data.labels_by` cannot be used, or raised an exception.
        DataError: It did not return a class for each label.
    """
    if config.labels_by:
        classes = build_labeling(config.labels_by)(train.y)
        return classes, int(classes.max()) + 1
    if are_class_labels(train.y, num_classes):
        return train.y.astype(np.int64, copy=False), num_classes
    return None, None


def _needs_classes(partitioner: Callable[..., Any], partition: Named) -> bool:
    """Whether a parameter for classes has no default, or an option requires them."""
    parameters = inspect.signature(partitioner).parameters
    required = any(name in parameters and parameters[name].default is inspect.Parameter.empty for name in _CLASSES)
    return required or _is_iid_per_class(partition)


def _check_reads_classes(partitioner: Callable[..., Any], partition: Named) -> None:
    reads = any(asks_for(partitioner, name) for name in _CLASSES)
    if not reads or (partition.name == "iid" and not _is_iid_per_class(partition)):
        raise ScenarioError(f"data.labels_by: partition '{partition.name}' does not use labels; leave it out")


def _is_iid_per_class(partition: Named) -> bool:
    return partition.name == "iid" and bool(partition.options.get("per_class"))
