"""The shard store: one read-only copy of the data per node, and an index that says which rows are whose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rayfl.config.data import Data, Normalization
from rayfl.config.section import Named
from rayfl.data.client_names import ClientNames
from rayfl.data.dataset import Provenance, Samples, Shards
from rayfl.data.held_out import BANK, CLIENT_TEST, VALIDATION, HeldOut, cut_clients, draw_for_server
from rayfl.data.inputs import Fields, Pieces
from rayfl.errors import DataError, RayflError
from rayfl.streams import stream

_BY_CLIENT = {VALIDATION: "for validation by client", CLIENT_TEST: "for testing by client"}


@dataclass(frozen=True)
class ShardStore:
    """The data of a run: plain arrays, so that the hosts of a node can share one copy of them.

    Attributes:
        name: Of the data set.
        train: All samples that clients train on.
        test: All test samples.
        num_classes: How many classes the labels count; None where they are no classes.
        train_shards: The rows of `train` that belong to each client.
        test_shards: The rows of `test` that belong to each client, in their order: of a natural partition, and of
            `shards`, where a client tests on the classes that it trains on; else None.
        normalize: Mean and standard deviation of the pixels, if they are normalised.
        augment: The augmentations of training batches, by name.
        views: Those of each view of a batch, where the task compares several that differ in them.
        provenance: Where the data came from.
        held_out: Further sets of samples that nobody trains on: "validation" and "client_test", which were cut from
            each client's training samples, and the data's further test sets under their own names.
        server: Samples that the server alone holds, if it holds any.
        bank: Training samples that metrics of features read beside test samples, if any do.
        collate: What makes one batch of inputs that differ in length, by name.
        made_classes: [training samples] int64, by which they were partitioned where `data.labels_by` made classes of
            their labels.
        chosen: What `data.classes` and `data.owners` chose, in words.
        client_names: Those of a natural partition's clients; None under others.
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
    """How many test samples there were where `test` holds only a part of them, drawn once for all evaluations."""
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
        """Of each view of a training batch; one for all where they do not differ."""
        return self.views or (self.augment,)

    @property
    def num_test_samples(self) -> int:
        """All test samples of the data, those that are never evaluated included."""
        return len(self.test) if self.test_drawn_from is None else self.test_drawn_from

    @property
    def num_clients(self) -> int:
        return len(self.train_shards)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of one sample's input: (height, width, channels) for images; None where inputs differ or have names."""
        x = self.train.x
        if self.collate or isinstance(x, Pieces | Fields):
            return None
        return tuple(int(size) for size in x.shape[1:])

    def samples(self, name: str) -> Samples:
        """A set of samples by name: "train", "test", "server", or one of those that are held out.

        Raises:
            RayflError: There is no set of this name; those that there are are named.
        """
        known = {"train": self.train, "test": self.test, **{key: part.samples for key, part in self.held_out.items()}}
        known |= {key: part for key, part in (("server", self.server), (BANK, self.bank)) if part is not None}
        if name not in known:
            raise RayflError(f"{self.name} has no samples '{name}'; it has {', '.join(known)}")
        return known[name]

    def summary(self) -> str:
        """One line: clients, training and test samples, what is held out, classes, and what was chosen of the data."""
        sizes = self.train_shards.sizes
        drawn = f"{len(self.test):,} of " if self.test_drawn_from is not None else ""
        held_out = [
            f"{len(part.samples):,} {_BY_CLIENT.get(name, 'in ' + name)}" for name, part in self.held_out.items()
        ]
        if self.server is not None:
            held_out.append(f"{len(self.server):,} with the server")
        return (
            f"{self.num_clients} clients with {sizes.min()} to {sizes.max()} training samples "
            f"(mean {sizes.mean():.0f}), {drawn}{self.num_test_samples:,} test samples, "
            + "".join(f"{part}, " for part in held_out)
            + (f"{self.num_classes} classes" if self.num_classes else "labels without classes")
            + "".join(f"; {words}" for words in self.chosen)
        )


def build_store(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> ShardStore:
    """Loads the data, partitions it among the clients, and checks all of it before anything is trained.

    Args:
        config: The scenario's data section.
        seed: The data's seed: of generated data, the choice of clients, the partition and the held-out parts.
        data_dir: Where sources look for files.
        cache_dir: Where sources keep what can be made again.

    Raises:
        ScenarioError: An unknown name or option, something that is for other data, or code of the user's own that
            raised something.
        DataError: Files are missing or damaged, there are too few clients, a shard is empty, or code of the user's own
            returned something wrong.
    """
    # here, since hosts, which are sent a store that is built, start without formats, partitions and pyarrow
    from rayfl.data.chosen_classes import check_every_class_is_held
    from rayfl.data.digest import data_digest
    from rayfl.data.loading import load, select
    from rayfl.data.partition.applying import partition_classes, partitioned
    from rayfl.data.partition.same_classes import same_classes
    from rayfl.data.trial import try_batches

    dataset = load(config, seed, data_dir, cache_dir)
    partition = config.partition or Named(name="natural" if dataset.natural else "iid")
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
        train, train_shards = _gather(train, train_shards)
        if natural.test is not None:
            test, test_shards = _gather(test, natural.test)
            if not len(test):
                raise DataError(f"none of the {len(natural.names)} chosen clients of {dataset.name} has test samples")
    elif partition.name == "shards" and config.labels_by is None:
        dealt = same_classes(train.y, train_shards, test.y, stream(seed, "partition", 1))
        test, test_shards = _gather(test, dealt, rest=True)
    _check_no_empty_shard(train_shards, partition.name, config.server_share)
    held_out: dict[str, HeldOut] = {}
    if config.validation_share is not None or config.test_share is not None:
        left, cut = cut_clients(train_shards, seed, config.validation_share, config.test_share)
        held_out |= {name: HeldOut(*_gather(train, shards)) for name, shards in cut.items()}
        made = None if made is None else made[left.rows]
        train, train_shards = _gather(train, left)
    if dataset.class_numbers is not None:
        check_every_class_is_held(train.y[train_shards.rows], dataset.class_numbers)
    store = ShardStore(
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
        client_names=ClientNames.of(natural.names) if natural and by_client else None,
    )
    try_batches(store)
    return store


def _gather(samples: Samples, shards: Shards, rest: bool = False) -> tuple[Samples, Shards]:
    """The rows that the shards own, client after client; with `rest`, then those that belong to nobody."""
    rows = shards.rows
    if rest:
        rows = np.concatenate([rows, np.setdiff1d(np.arange(len(samples)), rows)])
    # 4 bytes a row where they will do: texts have millions.
    places = np.arange(len(shards.rows), dtype=np.int32 if len(rows) < 2**31 else np.int64)
    return samples.take(rows), Shards(places, shards.offsets)


def _check_no_empty_shard(shards: Shards, partition: str, server_share: float | None) -> None:
    empty = np.flatnonzero(shards.sizes == 0)
    if len(empty):
        smaller = "" if server_share is None else ", or a smaller data.server_share"
        raise DataError(
            f"client {empty[0]} has no training samples ({len(empty)} of {len(shards)} clients are empty under "
            f"partition '{partition}'): use fewer clients, or a partition with a minimum, such as 'dirichlet'{smaller}"
        )
