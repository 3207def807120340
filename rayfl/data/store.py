"""The shard store: one read-only copy of the data per node, and an index of the rows of each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.config.data import Data, Normalization
from rayfl.config.section import Named
from rayfl.data.client_rows import all_labels, known_labels
from rayfl.data.dataset import ClientNames, OrderedShards, Provenance, Samples, Shards
from rayfl.data.held_out import BANK, CLIENT_TEST, VALIDATION, HeldOut, cut_clients, draw_for_server
from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.inputs import Array, Fields, InFragments, Pieces, Ragged, TextWindows, named_parts, reopen
from rayfl.errors import DataError, RayflError
from rayfl.streams import stream

_BY_CLIENT = {VALIDATION: "for validation by client", CLIENT_TEST: "for testing by client"}


@dataclass(frozen=True)
class ShardStore:
    """The data of a run, as plain arrays that the worker processes of a node share.

    Attributes:
        name: Name of the data set.
        train: All samples that clients train on.
        test: All test samples.
        num_classes: Number of classes; None if labels are not classes.
        train_shards: The rows of `train` that belong to each client.
        test_shards: The rows of `test` that belong to each client, in order, for the natural partition and for
            `shards` (where a client tests on the classes that it trains on); otherwise None.
        normalize: Mean and standard deviation of the pixels, if they are normalised.
        augment: The augmentations of training batches, by name.
        views: The augmentations of each view of a batch, if the task compares views with different augmentations.
        provenance: Where the data comes from.
        held_out: Sets of samples that no client trains on: "validation" and "client_test", held out from the training
            samples of each client, and additional test sets of the data under their own names.
        server: Samples that only the server holds, if any.
        bank: Training samples that feature metrics read in addition to test samples, if any.
        collate: The collation that makes batches of inputs of different lengths, by name.
        made_classes: [training samples] int64, the classes used for partitioning, if `data.labels_by` derived them
            from the labels.
        chosen: The selections by `data.classes` and `data.owners`, in words.
        client_names: The names of the clients under the natural partition; otherwise None.
    """

    name: str
    train: Samples
    test: Samples
    num_classes: int | None
    train_shards: Shards
    test_shards: Shards | None
    normalize: Normalization | None
    augment: tuple[Named, ...]
    provenance: Provenance
    test_drawn_from: int | None = None
    """Original number of test samples, if `test` holds only a part of them, drawn once for all evaluations."""
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)
    server: Samples | None = None
    bank: Samples | None = None
    collate: Named | None = None
    made_classes: np.ndarray | None = None
    chosen: tuple[str, ...] = ()
    views: tuple[tuple[Named, ...], ...] = ()
    client_names: ClientNames | None = None

    @property
    def augmentations(self) -> tuple[tuple[Named, ...], ...]:
        """The augmentations of each view of a training batch; a single entry if all views share them."""
        return self.views or (self.augment,)

    @property
    def num_test_samples(self) -> int:
        """Number of test samples in the data, including samples that are never evaluated."""
        return len(self.test) if self.test_drawn_from is None else self.test_drawn_from

    @property
    def known_labels(self) -> np.ndarray:
        """The training labels; where these are loaded later, those of the clients tried and of the test samples."""
        labels = known_labels(self.train.y)
        return labels if labels is self.train.y else np.concatenate([labels, known_labels(self.test.y)])

    @property
    def fragments(self) -> np.ndarray | None:
        """[clients] int32: the file of prepared data with each client's first training sample; None for other data."""
        for part in named_parts(self.train.x).values():
            read: object = part
            if isinstance(read, InFragments):
                return read.fragments_of(self.train_shards.firsts).astype(np.int32)
        return None

    @property
    def num_clients(self) -> int:
        return len(self.train_shards)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one input: (height, width, channels) for images; None if inputs differ in shape or have names."""
        x = self.train.x
        if self.collate or isinstance(x, Pieces | Fields):
            return None
        return tuple(int(size) for size in x.shape[1:])

    def samples(self, name: str) -> Samples:
        """A set of samples by name: "train", "test", "server", or a held-out set.

        Raises:
            RayflError: There is no set of this name; lists the existing ones.
        """
        known = self._sets
        if name not in known:
            raise RayflError(f"{self.name} has no samples '{name}'; it has {', '.join(known)}")
        return known[name]

    def reopen(self) -> None:
        """Opens inputs that a worker process reads from their source itself; others need nothing.

        Raises:
            DataError: The source has other data here than where the run started.
        """
        for samples in self._sets.values():
            reopen(samples.x)

    def move_arrays(self, move: Callable[[np.ndarray], np.ndarray]) -> None:
        """Replaces the arrays of all samples, for all stores that share them, by equal ones elsewhere in memory.

        Args:
            move: Copies an array, if it is worth it.
        """
        for samples in self._sets.values():
            parts = {name: _moved(part, move) for name, part in named_parts(samples.x).items()}
            object.__setattr__(samples, "x", Fields(parts) if isinstance(samples.x, Fields) else parts[""])
            if isinstance(samples.y, np.ndarray):
                object.__setattr__(samples, "y", move(samples.y))

    @property
    def _sets(self) -> dict[str, Samples]:
        known = {"train": self.train, "test": self.test, **{key: part.samples for key, part in self.held_out.items()}}
        return known | {key: part for key, part in (("server", self.server), (BANK, self.bank)) if part is not None}

    def summary(self) -> str:
        """One line about clients, training and test samples, held-out samples, classes and selections."""
        sizes = self.train_shards.sizes
        drawn = f"{len(self.test):,} of " if self.test_drawn_from is not None else ""
        held_out = [
            f"{len(part.samples):,} {_BY_CLIENT.get(name, 'in ' + name)}" for name, part in self.held_out.items()
        ]
        if self.server is not None:
            held_out.append(f"{len(self.server):,} on the server")
        return (
            f"{self.num_clients} clients with {sizes.min()} to {sizes.max()} training samples "
            f"(mean {sizes.mean():.0f}), {drawn}{self.num_test_samples:,} test samples, "
            + "".join(f"{part}, " for part in held_out)
            + (f"{self.num_classes} classes" if self.num_classes else "labels without classes")
            + "".join(f"; {words}" for words in self.chosen)
        )


def build_store(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> ShardStore:
    """Loads the data, partitions it among clients, and checks everything before training.

    Args:
        config: The scenario's data section.
        seed: The seed of the data, for generated data, the choice of clients, the partition and held-out samples.
        data_dir: Where sources look for files.
        cache_dir: Where sources keep files that can be regenerated.

    Raises:
        ScenarioError: A name or option is unknown or does not apply to this data, or user code raised an exception.
        DataError: Files are missing or damaged, there are too few clients, a shard is empty, or user code returned
            invalid data.
    """
    from rayfl.data.batch_trial import try_batches

    store = _without_unread(split_store(config, seed, data_dir, cache_dir))
    try_batches(store)
    return store


def split_store(config: Data, seed: int, data_dir: Path, cache_dir: Path, every_client: bool = False) -> ShardStore:
    """The same before batches are tried, and while rows that the store does not select are still in memory.

    With `every_client`, all clients of a `ClientSource` are loaded, rather than where they are trained.
    """
    # Imported here because hosts receive a finished store and start without formats, partitions and pyarrow.
    from rayfl.data.partition.split import check_materialised, partition_classes, partitioned, same_classes
    from rayfl.data.scenario_data import data_digest, load, select
    from rayfl.data.subsets import check_every_class_is_held

    dataset = load(config, seed, data_dir, cache_dir, every_client)
    partition = config.partition or Named(name="natural" if dataset.natural else "iid")
    if dataset.materialised:
        partition = check_materialised(config, seed, dataset.materialised, dataset.num_classes)
    natural, by_client = dataset.natural, partition.name == "natural"
    if natural and by_client:
        chosen = f" ({'; '.join(dataset.chosen)})" if dataset.chosen else ""
        natural = select(natural, f"{dataset.name}{chosen}", config.clients, seed)
    train, test, server = dataset.train, dataset.test, None
    if config.server_share is not None:
        train, server, natural = draw_for_server(train, natural, seed, config.server_share)
    classes, num_classes = partition_classes(config, train, dataset.num_classes)
    train_shards = partitioned(config, partition, train, classes, natural, seed, num_classes)
    made = classes if config.labels_by else None
    test_shards: Shards | None = None
    if natural and by_client:
        train, train_shards = _by_client(train, train_shards)
        if natural.test is not None:
            test, test_shards = _by_client(test, natural.test)
            if not len(test):
                raise DataError(f"none of the {len(natural.names)} chosen clients of {dataset.name} has test samples")
    elif partition.name == "shards" and config.labels_by is None:
        wanted = all_labels(test.y, f"data.partition: '{partition.name}'")
        dealt = same_classes(train.y, train_shards, wanted, stream(seed, "partition", 1))
        test, test_shards = _by_client(test, dealt, rest=True)
    _check_no_empty_shard(train_shards, partition.name, config.server_share)
    held_out: dict[str, HeldOut] = {}
    if config.validation_share is not None or config.test_share is not None:
        remaining, cut = cut_clients(train_shards, seed, config.validation_share, config.test_share)
        held_out |= {name: HeldOut(*_by_client(train, shards)) for name, shards in cut.items()}
        made = None if made is None else made[remaining.rows]
        train, train_shards = _by_client(train, remaining)
    if dataset.class_numbers is not None:
        check_every_class_is_held(train.y[train_shards.rows], dataset.class_numbers)
    named = natural and by_client and (dataset.materialised is None or dataset.materialised.named)
    return ShardStore(
        name=dataset.name,
        train=train,
        test=test,
        num_classes=dataset.num_classes,
        train_shards=train_shards,
        test_shards=test_shards,
        normalize=config.normalize,
        augment=config.augment,
        views=tuple(view.augment for view in config.views),
        provenance=replace(dataset.provenance, digest=data_digest(dataset)),
        held_out=held_out | {name: HeldOut(samples) for name, samples in dataset.tests.items()},
        server=server,
        collate=config.collate,
        made_classes=made,
        chosen=dataset.chosen,
        client_names=ClientNames.of(natural.names) if natural and named else None,
    )


def _by_client(samples: Samples, shards: Shards, rest: bool = False) -> tuple[Samples, Shards]:
    """The rows of the shards, numbered by client; with `rest`, followed by rows that belong to no client."""
    if isinstance(shards, OrderedShards) and shards.offsets[-1] == len(samples):
        return samples, shards
    rows = shards.rows
    if rest:
        rows = np.concatenate([rows, np.setdiff1d(np.arange(len(samples)), rows)])
    return samples.select(rows), OrderedShards(shards.offsets)


def _moved(part: Array | Pieces, move: Callable[[np.ndarray], np.ndarray]) -> Array | Pieces:
    match part:
        case np.ndarray():
            return move(part)
        case IndexedRows():
            part.shared.array = move(part.array)
        case Ragged():
            return replace(part, values=move(part.values))
        case TextWindows():
            return replace(part, text=move(part.text))
    return part


def _without_unread(store: ShardStore) -> ShardStore:
    """Copies the selected rows of arrays of which less than half is selected, so that the arrays are freed."""
    selected: Counter[int] = Counter()
    for samples in store._sets.values():
        for part in named_parts(samples.x).values():
            if isinstance(part, IndexedRows):
                selected[id(part.array)] += len(part)

    def copied(part: Any) -> Any:
        unread = isinstance(part, IndexedRows) and 2 * selected[id(part.array)] < len(part.array)
        return part[:] if unread else part

    def kept(samples: Samples) -> Samples:
        parts = {name: copied(part) for name, part in named_parts(samples.x).items()}
        return Samples(Fields(parts) if isinstance(samples.x, Fields) else parts[""], samples.y)

    held_out = {name: replace(part, samples=kept(part.samples)) for name, part in store.held_out.items()}
    server = None if store.server is None else kept(store.server)
    return replace(store, train=kept(store.train), test=kept(store.test), held_out=held_out, server=server)


def _check_no_empty_shard(shards: Shards, partition: str, server_share: float | None) -> None:
    empty = np.flatnonzero(shards.sizes == 0)
    if len(empty):
        smaller = "" if server_share is None else ", or a smaller data.server_share"
        raise DataError(
            f"client {empty[0]} has no training samples ({len(empty)} of {len(shards)} clients are empty under "
            f"partition '{partition}'): use fewer clients, or a partition with a minimum, such as 'dirichlet'{smaller}"
        )
