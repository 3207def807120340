"""The split of a scenario: its partitioner is called, and the result of a user-defined one is validated.

Without natural clients, test samples can be dealt too: each client is tested on its training classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from rayfl.config.component import Choice
from rayfl.config.data import Data
from rayfl.config.registry import asks_for
from rayfl.config.section import Named
from rayfl.data import partitioners
from rayfl.data.checks import are_class_labels, how_to_number
from rayfl.data.client_rows import all_labels
from rayfl.data.dataset import Materialised, NaturalClients, Samples, Shards
from rayfl.data.partition.labels_by import build_labeling
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream

_EXPECTED = (
    "a partitioner returns rayfl.data.Shards, or the owner of every training sample as [n] integers in 0..clients-1"
)


def checked_shards(result: Any, num_samples: int, clients: int | None, what: str) -> Shards:
    """Checks what a partitioner returned and converts it to `Shards`.

    Args:
        result: `Shards`, or an array (or list) with the owner of every sample.
        num_samples: Number of training samples.
        clients: Number of clients that the scenario asks for; None if it leaves this to the partitioner.
        what: Name of the partitioner, for error messages.

    Raises:
        DataError: The result has another type or shape, contains a row that does not exist or that is used twice, or
            has the wrong number of clients.
    """
    shards = result if isinstance(result, Shards) else _from_owners(result, num_samples, clients, what)
    rows, offsets = shards.rows, shards.offsets
    parts: tuple[tuple[str, Any], ...] = (("rows", rows), ("offsets", offsets))
    for name, array in parts:
        if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise DataError(f"{what} returned Shards whose {name} are {_in_words(array)}, not a vector of integers")
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
        raise DataError(
            f"{what} returned Shards whose offsets do not rise from 0 to {len(rows)}, the number of their rows; client "
            "c owns rows[offsets[c]:offsets[c + 1]]"
        )
    if clients is not None and len(shards) != clients:
        raise DataError(f"{what} returned shards of {len(shards)} clients, but data.clients is {clients}")
    if len(rows) and not 0 <= rows.min() <= rows.max() < num_samples:
        outside = rows.min() if rows.min() < 0 else rows.max()
        raise DataError(
            f"{what} returned row {outside}, but the {num_samples} training samples are rows 0 to {num_samples - 1}"
        )
    uses = np.bincount(rows, minlength=num_samples)
    if uses.max(initial=0) > 1:
        row = int(uses.argmax())
        owners = np.searchsorted(offsets, np.flatnonzero(rows == row)[:2], side="right") - 1
        raise DataError(
            f"{what} returned row {row} more than once (clients {owners[0]} and {owners[1]}); a sample belongs to one "
            "client at most"
        )
    return shards


def _from_owners(owners: Any, num_samples: int, clients: int | None, what: str) -> Shards:
    try:
        owner = np.asarray(owners)
    except Exception:  # an arbitrary object may raise anything when converted
        owner = np.empty(0, object)
    if owner.shape != (num_samples,) or not np.issubdtype(owner.dtype, np.integer):
        seen = _in_words(owners)
        raise DataError(f"{what} returned {seen} for {num_samples} training samples; {_EXPECTED}")
    count = int(owner.max()) + 1 if clients is None else clients
    if owner.min() < 0 or owner.max() >= count or count > num_samples:
        raise DataError(
            f"{what} returned owners from {owner.min()} to {owner.max()} for {num_samples} training samples"
            + ("" if clients is None else f" and {clients} clients")
            + "; clients are numbered from 0, and there are at most as many as samples"
        )
    return Shards.by_owner(owner, count)


def _in_words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    return "None" if value is None else f"an object of type {type(value).__name__}"


PARTITIONERS = Choice(
    partitioners,
    given=("labels", "num_classes", "targets", "num_samples", "clients", "rng", "natural"),
    otherwise="is an object of type {}, not a partitioner",
    says_where=False,
)
"""A partitioner may declare any of the given arguments; see `rayfl.data.partition`."""

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
        ScenarioError: The object is not a partitioner, it needs classes but there are none, `data.labels_by` has no
            effect, or chosen rows may be meant to be those of the source, of which the server got some.
        DataError: A user-defined partitioner did not return a partition.
    """
    partitioner = PARTITIONERS.target(partition.name, "data.partition")
    what = f"data.partition: '{partition.name}'"
    if partition.name != "natural":
        all_labels(train.y, what)
    if config.labels_by:
        _check_reads_classes(partitioner, partition)
    elif classes is None and _needs_classes(partitioner, partition):
        raise ScenarioError(
            f"{what} needs class labels, but these are {train.y.dtype}{list(train.y.shape)}; choose another partition, "
            f"such as 'iid', or set data.labels_by{how_to_number(train.y)}"
        )
    arguments = {
        "labels": classes,
        "num_classes": num_classes,
        "targets": train.y,
        "num_samples": len(train),
        "clients": config.clients,
        "rng": stream(seed, "partition"),
        "natural": natural,
    }
    result = PARTITIONERS.build(partition, "data.partition", **arguments)
    own = partition.name not in partitioners
    shards: Shards = checked_shards(result, len(train), config.clients, what) if own else result
    if own and config.server_share is not None and len(shards.rows) < len(train):
        raise ScenarioError(
            f"{what}: chose {len(shards.rows)} of the {len(train)} samples that data.server_share left to the clients, "
            "which are numbered anew; deal out all of them, or leave out data.server_share"
        )
    return shards


def partition_classes(config: Data, train: Samples, num_classes: int | None) -> tuple[np.ndarray | None, int | None]:
    """The classes for partitioning, [n] int64, and their number, from `data.labels_by` or from class labels.

    Raises:
        ScenarioError: The function of `data.labels_by` cannot be used, or raised an exception.
        DataError: It did not return a class for each label.
    """
    if config.labels_by:
        classes = build_labeling(config.labels_by)(all_labels(train.y, "data.labels_by"))
        return classes, int(classes.max()) + 1
    if isinstance(train.y, np.ndarray) and are_class_labels(train.y, num_classes):
        return train.y.astype(np.int64, copy=False), num_classes
    return None, None


def check_materialised(config: Data, seed: int, made: Materialised, num_classes: int | None) -> Named:
    """The partition under which prepared data has the clients that it was prepared with: their own.

    Args:
        config: The scenario's data section.
        seed: The seed of the data.
        made: How the data was prepared.
        num_classes: The number of classes that the scenario uses.

    Raises:
        ScenarioError: The scenario asks for a partition that is not the one of the data, or of some of its classes.
    """
    chosen = config.partition
    if chosen is not None:
        resolved = PARTITIONERS.resolve(chosen, "data.partition")
        wanted = f"{_described(resolved)}, {config.clients} clients, data seed {seed}"
        found = f"{_described(made.partition)}, {made.clients} clients, data seed {made.seed}"
        if chosen.name == "natural" == made.partition.name:
            wanted = found
        if wanted != found:
            raise ScenarioError(
                f"data.partition: {wanted}, but {made.folder} was prepared with {found}; leave data.partition out, or "
                "prepare the data again"
            )
        if chosen.name != "natural" and num_classes != made.num_classes:
            raise ScenarioError(
                f"data.partition: '{chosen.name}' of the classes in data.classes is not the partition of "
                f"{made.folder}, which was prepared with more; leave data.partition out, or prepare the data with "
                "data.classes"
            )
    return Named(name="natural")


def _described(partition: Named) -> str:
    options = ", ".join(f"{key} = {value}" for key, value in sorted(partition.options.items()))
    return f"'{partition.name}'" + (f" ({options})" if options else "")


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


def same_classes(
    train_labels: np.ndarray, train_shards: Shards, test_labels: np.ndarray, rng: np.random.Generator
) -> Shards:
    """Deals the test samples of every class evenly and at random to the clients that train on this class.

    The clients' shares of a class differ by at most one sample; which clients get the larger shares is random too. The
    test samples of a class that no client trains on are not dealt. A client may get none if all of its classes
    have fewer test samples than clients that train on them.

    Args:
        train_labels: [n] integers.
        train_shards: The clients' training samples.
        test_labels: [m] integers.
        rng: Random generator.

    Returns:
        The clients' test samples: rows of `test_labels`.

    Source: Oh et al., "FedBABU: Towards Enhanced Representation for Federated Image Classification", ICLR 2022:
    "same classes in train and test".
    """
    clients = len(train_shards)
    owner_of_row = np.repeat(np.arange(clients), train_shards.sizes)
    held = np.unique(np.stack([train_labels[train_shards.rows], owner_of_row]), axis=1)
    rows, owners = [], []
    for label in np.unique(test_labels):
        holders = held[1, held[0] == label]
        if len(holders):
            of_class = rng.permutation(np.flatnonzero(test_labels == label))
            rows.append(of_class)
            owners.append(np.resize(rng.permutation(holders), len(of_class)))
    dealt = np.concatenate(rows) if rows else np.empty(0, np.int64)
    by_client = Shards.by_owner(np.concatenate(owners) if owners else np.empty(0, np.int64), clients)
    return Shards(dealt[by_client.rows], by_client.offsets)
