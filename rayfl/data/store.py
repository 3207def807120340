"""The shard store: one read-only copy of the data per node, and an index that says which rows are whose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rayfl.config.data import Data, Normalization
from rayfl.config.section import Named
from rayfl.data import data_sources, partitioners
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.augmentation.pipeline import Pipeline
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.partition.checking import checked_shards
from rayfl.data.partition.same_classes import same_classes
from rayfl.errors import DataError, ScenarioError
from rayfl.registry import call_with_options
from rayfl.streams import stream


@dataclass(frozen=True)
class ShardStore:
    """The data of a run: plain arrays, so that the hosts of a node can share one copy of them.

    Attributes:
        name: Of the data set.
        train: All training samples.
        test: All test samples.
        num_classes: How many classes the labels count.
        train_shards: The rows of `train` that belong to each client.
        test_shards: The rows of `test` that belong to each client, in their order: of a natural partition, and of
            `shards`, where a client tests on the classes that it trains on; else None.
        normalize: Mean and standard deviation of the pixels, if they are normalised.
        augment: The augmentations of training batches, by name.
        provenance: Where the data came from.
    """

    name: str
    train: Samples
    test: Samples
    num_classes: int
    train_shards: Shards
    test_shards: Shards | None
    normalize: Normalization | None
    augment: tuple[Named, ...]
    provenance: Provenance
    test_drawn_from: int | None = None
    """How many test samples there were where `test` holds only a part of them, drawn once for all evaluations."""

    @property
    def num_test_samples(self) -> int:
        """All test samples of the data, those that are never evaluated included."""
        return len(self.test) if self.test_drawn_from is None else self.test_drawn_from

    @property
    def num_clients(self) -> int:
        return len(self.train_shards)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample's input: (height, width, channels) for images."""
        return tuple(int(size) for size in self.train.x.shape[1:])

    def summary(self) -> str:
        sizes = self.train_shards.sizes
        drawn = f"{len(self.test):,} of " if self.test_drawn_from is not None else ""
        return (
            f"{self.num_clients} clients with {sizes.min()} to {sizes.max()} training samples "
            f"(mean {sizes.mean():.0f}), {drawn}{self.num_test_samples:,} test samples, {self.num_classes} classes"
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
    dataset = _load(config, seed, data_dir, cache_dir)
    partition = config.partition or Named(name="natural" if dataset.natural else "iid")
    natural = dataset.natural
    if natural and partition.name == "natural":
        natural = _select(natural, dataset.name, config.clients, seed)
    train, test = dataset.train, dataset.test
    train_shards = _partitioned(config, partition, dataset, natural, seed)
    test_shards: Shards | None = None
    if natural and partition.name == "natural":
        train, train_shards = _gather(train, train_shards)
        test, test_shards = _gather(test, natural.test)
        if not len(test):
            raise DataError(f"none of the {len(natural.names)} chosen clients of {dataset.name} has test samples")
    elif partition.name == "shards":
        dealt = same_classes(train.y, train_shards, test.y, stream(seed, "partition", 1))
        test, test_shards = _gather(test, dealt, rest=True)
    _check_no_empty_shard(train_shards, partition.name)
    store = ShardStore(
        name=dataset.name,
        train=train,
        test=test,
        num_classes=dataset.num_classes,
        train_shards=train_shards,
        test_shards=test_shards,
        normalize=config.normalize,
        augment=config.augment,
        provenance=dataset.provenance,
    )
    _check_images(store)
    return store


def _partitioned(config: Data, partition: Named, dataset: Dataset, natural: NaturalClients | None, seed: int) -> Shards:
    where = "data.partition"
    partitioner = partitioners.resolve(partition.name)
    what = f"{where}: '{partition.name}'"
    if not callable(partitioner):
        raise ScenarioError(f"{what} is an object of type {type(partitioner).__name__}, not a partitioner")
    given = {
        "labels": dataset.train.y.astype(np.int64, copy=False),
        "num_classes": dataset.num_classes,
        "clients": config.clients,
        "rng": stream(seed, "partition"),
        "natural": natural,
    }
    found = call_with_options(partitioner, partition.options, given, where)
    return found if partition.name in partitioners else checked_shards(found, len(dataset.train), config.clients, what)


def _check_images(store: ShardStore) -> None:
    """Checks that what is for images is given images, and tries the augmentation out on two samples."""
    train, normalize = store.train, store.normalize
    is_images = train.x.dtype == np.uint8 and train.x.ndim == 4
    if normalize and not is_images:
        raise ScenarioError(
            "data.normalize is for images, [n, height, width, channels] uint8; other inputs are given to the model as "
            f"they are ({store.name}: {train.x.dtype}, {train.x.ndim} dimensions)"
        )
    if normalize and len(normalize.mean) != train.x.shape[-1]:
        raise ScenarioError(
            f"data.normalize: {len(normalize.mean)} values, but inputs have {train.x.shape[-1]} channels"
        )
    steps = Pipeline(store.augment).steps
    for index, (chosen, step) in enumerate(zip(store.augment, steps, strict=True)):
        where = f"data.augment.{index}"
        if not is_images:
            raise ScenarioError(f"{where}: '{chosen.name}' is for images, [n, height, width, channels] uint8")
        needed = getattr(step, "normalization", None)
        if needed and normalize != Normalization.model_validate(needed):
            raise ScenarioError(
                f"{where}: '{chosen.name}' fills with the black of data.normalize = \"{needed}\"; set that, or "
                "choose another augmentation"
            )
    if steps:
        source = BatchSource(store, torch.device("cpu"))
        for _ in source.training_batches(np.arange(min(2, len(train))), 2, np.random.default_rng(0)):
            pass


def _load(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> Dataset:
    source = data_sources.resolve(config.name)
    given = {
        "source": config.source,
        "data_dir": data_dir,
        "cache_dir": cache_dir,
        "seed": seed,
        "clients": config.clients,
    }
    if not callable(source) and config.options:
        raise ScenarioError(f"data.options: '{config.name}' is not a function, and takes none")
    loaded = call_with_options(source, config.options, given, "data.options") if callable(source) else source
    if not isinstance(loaded, Dataset):
        return dataset_of_arrays(config.name, loaded)
    natural = loaded.natural
    if natural and config.name not in data_sources:
        for split, samples in (("train", loaded.train), ("test", loaded.test)):
            what = f"data.name: the natural clients' {split} shards of '{config.name}':"
            checked_shards(getattr(natural, split), len(samples), len(natural.names), what)
    return loaded


def _select(natural: NaturalClients, name: str, clients: int | None, seed: int) -> NaturalClients:
    """Of the data's own clients, those of this scenario: drawn uniformly, kept in the data's order."""
    available = len(natural.names)
    if clients is None or clients == available:
        return natural
    if clients > available:
        raise DataError(f"data.clients: {clients} were asked for, but {name} has {available}")
    chosen = np.sort(stream(seed, "select").choice(available, clients, replace=False))
    names = tuple(natural.names[int(client)] for client in chosen)
    return NaturalClients(names, natural.train.subset(chosen), natural.test.subset(chosen))


def _gather(samples: Samples, shards: Shards, rest: bool = False) -> tuple[Samples, Shards]:
    """The rows that the shards own, client after client; with `rest`, then those that belong to nobody."""
    rows = shards.rows
    if rest:
        rows = np.concatenate([rows, np.setdiff1d(np.arange(len(samples)), rows)])
    # 4 bytes a row where they will do: texts have millions.
    places = np.arange(len(shards.rows), dtype=np.int32 if len(rows) < 2**31 else np.int64)
    return samples.take(rows), Shards(places, shards.offsets)


def _check_no_empty_shard(shards: Shards, partition: str) -> None:
    empty = np.flatnonzero(shards.sizes == 0)
    if len(empty):
        raise DataError(
            f"client {empty[0]} has no training samples ({len(empty)} of {len(shards)} clients are empty under "
            f"partition '{partition}'): use fewer clients, or a partition with a minimum, such as 'dirichlet'"
        )
