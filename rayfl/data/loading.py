"""From the data section of a scenario to a data set, and the choice of its classes and of its own clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rayfl.config.data import Data
from rayfl.data import data_sources
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.chosen_classes import choose_classes
from rayfl.data.chosen_owners import choose_owners
from rayfl.data.dataset import Dataset, NaturalClients, Provenance
from rayfl.data.partition.checking import checked_shards
from rayfl.data.source_call import SourceCall
from rayfl.data.torch_datasets.trial import with_datasets_opened
from rayfl.errors import DataError
from rayfl.streams import stream


def load(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> Dataset:
    """Calls the source that the scenario names, and keeps what `data.owners` and `data.classes` choose of its data.

    What a source of the user's own returns is checked. See `build_store`.
    """
    dataset = _from_source(config, seed, data_dir, cache_dir)
    if config.owners:
        dataset = choose_owners(dataset, config.owners)
    if config.classes:
        dataset = choose_classes(dataset, config.classes, seed)
    return dataset


def _from_source(config: Data, seed: int, data_dir: Path, cache_dir: Path) -> Dataset:
    given = {
        "source": config.source,
        "data_dir": data_dir,
        "cache_dir": cache_dir,
        "seed": seed,
        # those that are drawn from, where some are drawn of some
        "clients": config.owners.of if config.owners else config.clients,
    }
    call = SourceCall(config.name, config.options, given)
    loaded = call()
    if not isinstance(loaded, Dataset):
        opened = with_datasets_opened(loaded, call, collated=config.collate is not None)
        description = f"Datasets of PyTorch from {config.name}, whose items are read when they are needed"
        provenance = None if opened is loaded else Provenance("arrays", description)
        return dataset_of_arrays(config.name, opened, provenance)
    natural = loaded.natural
    if natural and config.name not in data_sources:
        for split, samples, shards in (("train", loaded.train, natural.train), ("test", loaded.test, natural.test)):
            what = f"data.name: the natural clients' {split} shards of '{config.name}':"
            if shards is not None:
                checked_shards(shards, len(samples), len(natural.names), what)
    return loaded


def select(natural: NaturalClients, name: str, clients: int | None, seed: int) -> NaturalClients:
    """Of the data's own clients, those of this scenario: drawn uniformly, kept in the data's order."""
    available = len(natural.names)
    if clients is None or clients == available:
        return natural
    if clients > available:
        raise DataError(f"data.clients: {clients} were asked for, but {name} has {available}")
    chosen = np.sort(stream(seed, "select").choice(available, clients, replace=False))
    names = tuple(natural.names[int(client)] for client in chosen)
    test = None if natural.test is None else natural.test.subset(chosen)
    return NaturalClients(names, natural.train.subset(chosen), test)
