"""The data set of a scenario: loaded from its source, restricted to its classes and clients, and its digest.

PyTorch Datasets that a source returns become lazily read inputs, labels and clients, after a trial of some items. The
digest identifies a data set, independent of its folder.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rayfl.config.data import Data
from rayfl.data import data_sources
from rayfl.data.arrays import dataset_of_arrays
from rayfl.data.checks import check_values
from rayfl.data.client_rows import ClientRows, LoadedClients, client_sources
from rayfl.data.dataset import ClientNames, Dataset, NaturalClients, OrderedShards, Provenance, Samples, Shards
from rayfl.data.formats.scratch import reserved
from rayfl.data.inputs import Array, Fields, Pieces, Ragged, Rendered, TextWindows, named_parts, spaced
from rayfl.data.named_functions import SourceCall
from rayfl.data.partition.split import checked_shards
from rayfl.data.subsets import choose_classes, choose_owners
from rayfl.data.torch_datasets import GivenSet, MapStyle, given_sets, held_labels, labels_of, read_item
from rayfl.data.torch_rows import Field, OpenSets, TorchPieces, TorchRows, items_digest, one_thread
from rayfl.data.tried import Tried
from rayfl.errors import DataError
from rayfl.streams import stream

Item = dict[str, np.ndarray]
"""The inputs of an item by name."""


def with_datasets_opened(loaded: Any, call: SourceCall, collated: bool) -> Any:
    """Replaces every Dataset in the result of a source by (x, y) or (x, y, clients).

    Args:
        loaded: The result of a source; anything but Datasets is kept.
        call: The call of the source.
        collated: Whether inputs may differ in length, because `data.collate` makes batches of them.

    Raises:
        DataError: A Dataset cannot be read by number, or its items are not pairs, differ, or are random.
    """
    source = f"data.name: '{call.name}'"
    datasets = given_sets(loaded, source)
    if not datasets:
        return loaded
    with one_thread():
        read = {part: _tried(one.dataset, f"{source}: {part}") for part, one in datasets.items()}
    tried = {part: Tried.of(*read[part], held_labels(one.dataset)) for part, one in datasets.items()}
    sets = OpenSets(call, {part: one.dataset for part, one in datasets.items()}, tried)
    return {**loaded, **{part: _opened(one, sets, part, *read[part], collated) for part, one in datasets.items()}}


def _opened(
    given_set: GivenSet, sets: OpenSets, part: str, items: Sequence[Item], labels: Sequence[Any], collated: bool
) -> tuple[Any, ...]:
    where, dataset = f"{sets.name}: {part}", given_set.dataset
    places, tried, rows = spaced(len(dataset)), items_digest(items), np.arange(len(dataset), dtype=np.int64)
    inputs: dict[str, TorchRows | TorchPieces] = {}
    for name, first in items[0].items():
        field = Field(sets, part, name, first.shape, first.dtype, tried, ragged=collated and first.ndim > 0)
        field.of_items(places, items)
        inputs[name] = TorchPieces(field, rows) if field.ragged else TorchRows(field, rows)
    x = inputs[""] if list(inputs) == [""] else Fields(inputs)
    y = labels_of(dataset, dict(zip(places, labels, strict=True)), where)
    return (x, y) if given_set.clients is None else (x, y, given_set.clients)


def _tried(dataset: MapStyle, where: str) -> tuple[list[Item], list[Any]]:
    """Reads some items twice, since random items would differ between workers and between runs."""
    items, labels, draws = [], [], []
    for row in spaced(len(dataset)):
        readings = []
        for _ in range(2):
            before = _generators()
            readings.append(read_item(dataset, row, where))
            draws.append(_generators() != before)
        (item, label), (again, label_again) = readings
        for name, values in item.items():
            inputs = f"{where}: item {row}: its inputs" + (f" '{name}'" if name else "")
            check_values(np.atleast_1d(values), inputs)
        if not _equal(item, again) or not _equal({"": np.asarray(label)}, {"": np.asarray(label_again)}):
            draws = [True]
            break
        items.append(item)
        labels.append(label)
    if all(draws):
        raise DataError(
            f"{where}: items are random, so no two reads return the same; remove random transforms from the Dataset "
            "and list them in data.augment"
        )
    return items, labels


def _equal(item: Item, again: Item) -> bool:
    return item.keys() == again.keys() and all(
        values.dtype == object or np.array_equal(values, again[name], equal_nan=values.dtype.kind == "f")
        for name, values in item.items()
    )


def _generators() -> tuple[Any, ...]:
    """The state of the global random generators."""
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002 - user code may draw from it
    return random.getstate(), np.asarray(keys).tobytes(), place, torch.random.get_rng_state().numpy().tobytes()


def with_clients_opened(
    loaded: Any, call: SourceCall, seed: int, every_client: bool
) -> tuple[Any, LoadedClients | None]:
    """Replaces every `ClientSource` in the result of a source by (x, y, the rows of its clients).

    Args:
        loaded: The result of a source.
        call: The call of the source.
        seed: The seed of the data.
        every_client: Whether all clients are loaded now, into memory that `reserved` provides.

    Returns:
        The result, and the clients, if any.

    Raises:
        DataError: A client has other samples than its size says, or than other clients have; or `load` raised.
    """
    sources = client_sources(loaded)
    if not sources:
        return loaded, None
    clients = LoadedClients(call, sources, seed)
    opened = {}
    for part, known in clients.sets.items():
        x, y = (ClientRows(clients, part, place, range(int(known.offsets[-1]))) for place in (0, 1))
        opened[part] = (*(_all_loaded(x, y) if every_client else (x, y)), OrderedShards(known.offsets))
    return {**loaded, **opened}, clients


def _all_loaded(x: ClientRows, y: ClientRows) -> tuple[np.ndarray, np.ndarray]:
    arrays, start = (reserved(x.shape, x.dtype), reserved(y.shape, y.dtype)), 0
    for pair in x.clients.clients(x.part):
        for array, values in zip(arrays, pair, strict=True):
            array[start : start + len(values)] = values
        start += len(pair[0])
    return arrays


def load(config: Data, seed: int, data_dir: Path, cache_dir: Path, every_client: bool = False) -> Dataset:
    """Calls the source that the scenario names, then applies `data.owners` and `data.classes`.

    The result of a user-defined source is checked. See `split_store`.
    """
    dataset = _from_source(config, seed, data_dir, cache_dir, every_client)
    if config.owners:
        dataset = choose_owners(dataset, config.owners)
    if config.classes:
        dataset = choose_classes(dataset, config.classes, seed)
    return dataset


def _from_source(config: Data, seed: int, data_dir: Path, cache_dir: Path, every_client: bool) -> Dataset:
    arguments = {
        "source": config.source,
        "data_dir": data_dir,
        "cache_dir": cache_dir,
        "seed": seed,
        # all clients to draw from, if `data.owners` restricts them
        "clients": config.owners.of if config.owners else config.clients,
    }
    call = SourceCall(config.name, config.options, arguments)
    loaded, clients = with_clients_opened(call(), call, seed, every_client)
    if not isinstance(loaded, Dataset):
        opened = with_datasets_opened(loaded, call, collated=config.collate is not None)
        read = [] if opened is loaded else [f"PyTorch Datasets from {config.name}, whose items are read when needed"]
        if clients is not None and not every_client:
            read.append(f"clients from {config.name}, each loaded where it is trained")
        provenance = Provenance("arrays", "; ".join(read)) if read else None
        dataset = dataset_of_arrays(config.name, opened, provenance, clients.num_classes if clients else None)
        if clients is not None:
            clients.num_classes = dataset.num_classes
        return dataset
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
    return natural.subset(np.sort(stream(seed, "select").choice(available, clients, replace=False)))


_BYTES_AT_ONCE = 2**24


def data_digest(dataset: Dataset) -> str:
    """SHA-256 in hexadecimal: of the digests of the files, or of all samples if no files were read.

    Rendered inputs contribute their recipe; a PyTorch Dataset contributes some items spread over all of it, and a
    `ClientSource` its sizes and the client that is compared.
    """
    digest = hashlib.sha256()
    for _, of_file in dataset.provenance.files:
        digest.update(of_file.encode())
    if not dataset.provenance.files:
        for part, samples in dataset.parts.items():
            digest.update(part.encode())
            _add_samples(digest, samples)
        if natural := dataset.natural:
            names = ClientNames.of(natural.names)
            digest.update(np.insert(names.text, names.ends[:-1], ord("\n")).data)
            for shards in (natural.train, natural.test):
                _add_shards(digest, shards)
    return digest.hexdigest()


def _add_samples(digest: hashlib._Hash, samples: Samples) -> None:
    for name, part in named_parts(samples.x).items():
        digest.update(name.encode())
        match part:
            case TextWindows():
                arrays: tuple[Array, ...] = (part.text, part.starts, np.array(part.length))
            case Ragged():
                arrays = (part.values, part.starts, part.lengths)
            case Rendered():
                arrays = ()
                digest.update(json.dumps(dict(part.recipe), sort_keys=True).encode())
            case TorchRows() | TorchPieces():
                arrays = (part.rows,)
                digest.update(part.field.tried.encode())
            case ClientRows():
                arrays = (part.known.offsets, *part.clients.client(part.part, part.known.compared))
            case _:
                assert not isinstance(part, Pieces)
                arrays = (part,)
        for array in arrays:
            _add(digest, array)
    if isinstance(samples.y, np.ndarray):
        _add(digest, samples.y)


def _add_shards(digest: hashlib._Hash, shards: Shards | None) -> None:
    if shards is not None:
        _add(digest, shards.rows)
        _add(digest, shards.offsets)


def _add(digest: hashlib._Hash, array: Array) -> None:
    """Adds shape, dtype and content, some rows at a time because they may be on disk."""
    digest.update(f"{array.dtype} {array.shape}".encode())
    if not array.ndim:
        digest.update(np.asarray(array).tobytes())
        return
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    rows = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for first in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[first : first + rows]).data)
