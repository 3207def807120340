"""The shard store: one read-only copy of the data per node, and an index that says which rows are whose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rayfl.config.data import Data, Normalization
from rayfl.config.section import Named
from rayfl.data import augmentations, partitioners, sources
from rayfl.data.dataset import Dataset, Examples, NaturalClients, Provenance, Shards
from rayfl.data.same_classes import same_classes
from rayfl.errors import DataError, ScenarioError
from rayfl.registry import call_with_options
from rayfl.streams import stream


@dataclass(frozen=True)
class ShardStore:
    """The data of a run. Plain arrays, so that the hosts of a node can share one copy of them.

    test_shards: whose test examples are whose, in the order of the test examples: of a natural partition, and of
        `shards`, where a client tests on the classes that it trains on; else None.
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
    train_shards: Shards
    test_shards: Shards | None
    normalize: Normalization | None
    augment: tuple[Named, ...]
    provenance: Provenance

    @property
    def num_clients(self) -> int:
        return len(self.train_shards)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example: (height, width, channels) for images."""
        return tuple(int(size) for size in self.train.x.shape[1:])

    def summary(self) -> str:
        sizes = self.train_shards.sizes
        return (
            f"{self.num_clients} clients with {sizes.min()} to {sizes.max()} training examples "
            f"(mean {sizes.mean():.0f}), {len(self.test)} test examples, {self.num_classes} classes"
        )


def build_store(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> ShardStore:
    """Loads the data, spreads it over the clients, and checks that every client has some.

    Raises:
        ScenarioError: an unknown name or option.
        DataError: files are missing or damaged, there are too few clients, or a shard is empty.
    """
    dataset = _load(config, seed, data_dir, cache_dir)
    partition = config.partition or Named(name="natural" if dataset.natural else "iid")
    natural = dataset.natural
    if natural and partition.name == "natural":
        natural = _select(natural, dataset.name, config.clients, seed)
    given = {
        "labels": dataset.train.y.astype(np.int64, copy=False),
        "num_classes": dataset.num_classes,
        "clients": config.clients,
        "rng": stream(seed, "partition"),
        "natural": natural,
    }
    train, test = dataset.train, dataset.test
    train_shards = call_with_options(partitioners.resolve(partition.name), partition.options, given, "data.partition")
    test_shards: Shards | None = None
    if natural and partition.name == "natural":
        train, train_shards = _gather(train, train_shards)
        test, test_shards = _gather(test, natural.test)
        if not len(test):
            raise DataError(f"none of the {len(natural.names)} chosen clients of {dataset.name} has test examples")
    elif partition.name == "shards":
        dealt = same_classes(train.y, train_shards, test.y, stream(seed, "partition", 1))
        test, test_shards = _gather(test, dealt, rest=True)
    _check_no_empty_shard(train_shards, partition.name)
    is_images = train.x.dtype == np.uint8 and train.x.ndim == 4
    if config.normalize and not is_images:
        raise ScenarioError(
            "data.normalize is for images, [n, height, width, channels] uint8; other inputs are given to the model as "
            f"they are ({dataset.name}: {train.x.dtype}, {train.x.ndim} dimensions)"
        )
    if config.normalize and len(config.normalize.mean) != train.x.shape[-1]:
        raise ScenarioError(
            f"data.normalize: {len(config.normalize.mean)} values, but inputs have {train.x.shape[-1]} channels"
        )
    for index, augmentation in enumerate(config.augment):
        where = f"data.augment.{index}"
        built = call_with_options(augmentations.resolve(augmentation.name), augmentation.options, {}, where)
        if not is_images:
            raise ScenarioError(f"{where}: '{augmentation.name}' is for images, [n, height, width, channels] uint8")
        needed = getattr(built, "normalization", None)
        if needed and config.normalize != Normalization.model_validate(needed):
            raise ScenarioError(
                f"{where}: '{augmentation.name}' fills with the black of data.normalize = \"{needed}\"; set that, or "
                "choose another augmentation"
            )
    return ShardStore(
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


def _load(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> Dataset:
    source = sources.resolve(config.name)
    given = {
        "source": config.source,
        "data_dir": data_dir,
        "cache_dir": cache_dir,
        "seed": seed,
        "clients": config.clients,
    }
    if not callable(source) and config.options:
        raise ScenarioError(f"data.options: '{config.name}' is no callable, so it takes none")
    loaded = call_with_options(source, config.options, given, "data.options") if callable(source) else source
    return loaded if isinstance(loaded, Dataset) else _from_arrays(config.name, loaded)


def _from_arrays(name: str, loaded: Any) -> Dataset:
    """A user's own arrays: (train_x, train_y, test_x, test_y), numpy or anything numpy can read."""
    try:
        train_x, train_y, test_x, test_y = (np.asarray(part) for part in loaded)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"data '{name}' is neither a rayfl.data.Dataset nor arrays (train_x, train_y, test_x, test_y): {error}"
        ) from error
    for label, y in (("train_y", train_y), ("test_y", test_y)):
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or not len(y):
            raise DataError(
                f"data '{name}': {label} must be a vector of integer class labels, not {y.dtype}{list(y.shape)}"
            )
    return Dataset(
        name=name,
        train=Examples(train_x, train_y.astype(np.int64)),
        test=Examples(test_x, test_y.astype(np.int64)),
        num_classes=int(max(train_y.max(), test_y.max())) + 1,
        provenance=Provenance("arrays", f"arrays from {name}"),
    )


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


def _gather(examples: Examples, shards: Shards, rest: bool = False) -> tuple[Examples, Shards]:
    """The rows that the shards own, client after client; with `rest`, then those that belong to nobody."""
    rows = shards.rows
    if rest:
        rows = np.concatenate([rows, np.setdiff1d(np.arange(len(examples)), rows)])
    # 4 bytes a row where they will do: texts have millions.
    places = np.arange(len(shards.rows), dtype=np.int32 if len(rows) < 2**31 else np.int64)
    return examples.take(rows), Shards(places, shards.offsets)


def _check_no_empty_shard(shards: Shards, partition: str) -> None:
    empty = np.flatnonzero(shards.sizes == 0)
    if len(empty):
        raise DataError(
            f"client {empty[0]} has no training examples ({len(empty)} of {len(shards)} clients are empty under "
            f"partition '{partition}'): use fewer clients, or a partition with a minimum, such as 'dirichlet'"
        )
