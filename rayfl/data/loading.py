"""Loads the data set of a scenario and selects its classes and natural clients."""

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
    """Calls the source that the scenario names, then applies `data.owners` and `data.classes`.

    The result of a user-defined source is checked. See `build_store`.
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
        # all clients to draw from, if `data.owners` restricts them
        "clients": config.owners.of if config.owners else config.clients,
    }
    call = SourceCall(config.name, config.options, given)
    loaded = call()
    if not isinstance(loaded, Dataset):
        opened = with_datasets_opened(loaded, call, collated=config.collate is not None)
        description = f"PyTorch Datasets from {config.name}, whose items are read when needed"
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
    """Draws the clients of this scenario uniformly from the natural clients; they keep their order."""
    available = len(natural.names)
    if clients is None or clients == available:
        return natural
    if clients > available:
        raise DataError(f"data.clients: {clients} were asked for, but {name} has {available}")
    chosen = np.sort(stream(seed, "select").choice(available, clients, replace=False))
    names = tuple(natural.names[int(client)] for client in chosen)
    test = None if natural.test is None else natural.test.subset(chosen)
    return NaturalClients(names, natural.train.subset(chosen), test)
