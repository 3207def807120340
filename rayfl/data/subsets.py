"""`data.classes` and `data.owners`: a data set restricted to some of its classes or of its natural clients.

Both select places of a random order.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np

from rayfl.config.data import Classes, Owners, Places
from rayfl.data.checks import are_class_labels
from rayfl.data.client_rows import all_labels
from rayfl.data.dataset import Dataset, NaturalClients, Samples, Shards
from rayfl.data.inputs import TextWindows
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream


def at_places(config: Places, purpose: str, number: int, described: str) -> np.ndarray:
    """Numbers at the given places of a random order: [config.number] int64 in 0..number-1.

    The order depends only on `config.order_seed`, `purpose` and `number`.

    Args:
        config: The places.
        purpose: Purpose of the random stream; also the key of [data], for the error.
        number: How many there are in total.
        described: The same in words, for the error: "cifar100 has 100 classes".

    Raises:
        DataError: A place is beyond the last.
    """
    if config.end > number:
        raise DataError(
            f"data.{purpose}.places: the last range ends at {config.end}, but {described}; choose at most {number}"
        )
    order = stream(config.order_seed, f"order of {purpose}").permutation(number)
    return np.concatenate([order[start:stop] for start, stop in config.places])


def listed(numbers: np.ndarray) -> str:
    """Ascending numbers in words: "0-3, 7, 9-12"."""
    runs = [list(run) for _, run in groupby(enumerate(numbers.tolist()), lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def choose_classes(dataset: Dataset, config: Classes, seed: int) -> Dataset:
    """Keeps the samples of the chosen classes, which are renumbered in ascending order.

    The choice depends only on the section, the number of classes and, if some are drawn, the seed. Samples keep their
    order. Natural clients left without training samples are removed.

    Args:
        dataset: As returned by its source.
        config: The scenario's `data.classes`.
        seed: The data's seed.

    Raises:
        ScenarioError: Labels are not classes, or are symbols of a text.
        DataError: A place is beyond the last class, or a set of samples or the list of clients would be empty.
    """
    count = dataset.num_classes
    y, *_ = (all_labels(samples.y, "data.classes") for samples in dataset.parts.values())
    if not are_class_labels(y, count):
        raise ScenarioError(
            f"data.classes: needs class labels, but those of {dataset.name} are {y.dtype}{list(y.shape)}; leave it out"
        )
    if isinstance(dataset.train.x, TextWindows):
        raise ScenarioError(
            f"data.classes: the labels of {dataset.name} are symbols of the text, like its inputs; leave it out"
        )
    assert count is not None
    numbers = chosen_numbers(config, count, seed, dataset.name)
    rows_by_part = {part: np.flatnonzero(np.isin(samples.y, numbers)) for part, samples in dataset.parts.items()}
    for part, rows in rows_by_part.items():
        if not len(rows):
            raise DataError(
                f"data.classes: {part} of {dataset.name} has no samples of {_in_words(numbers)}; choose others"
            )
    natural = dataset.natural and _clients_left(dataset.natural, rows_by_part["train"], rows_by_part["test"])
    if natural and not natural.names:
        raise DataError(
            f"data.classes: no client of {dataset.name} has training samples of {_in_words(numbers)}; choose others"
        )
    parts = {part: _renumbered(dataset.parts[part].select(rows), numbers) for part, rows in rows_by_part.items()}
    return replace(
        dataset,
        train=parts.pop("train"),
        test=parts.pop("test"),
        tests=parts,
        num_classes=len(numbers),
        natural=natural,
        class_numbers=numbers,
        chosen=(*dataset.chosen, f"{_in_words(numbers)} of {count}"),
    )


def chosen_numbers(config: Classes, count: int, seed: int, name: str) -> np.ndarray:
    """The numbers of the chosen classes, ascending: [classes] int64 in 0..count-1."""
    pool = at_places(config, "classes", count, f"{name} has {count} classes")
    if config.draw is not None:
        pool = stream(seed, "draw classes").choice(pool, config.draw, replace=False)
    return np.sort(pool)


def check_every_class_is_held(labels: np.ndarray, numbers: np.ndarray) -> None:
    """Checks that clients train on samples of every chosen class.

    Args:
        labels: [n] labels of the training samples.
        numbers: [classes] original numbers of the classes.

    Raises:
        DataError: Some classes are held by no client; gives their original numbers.
    """
    missing = np.setdiff1d(np.arange(len(numbers)), labels)
    if len(missing):
        raise DataError(
            f"data.classes: no client has training samples of {_in_words(numbers[missing])}; choose other places, "
            "another data.seed or more clients, or hold out fewer samples"
        )


def _in_words(numbers: np.ndarray) -> str:
    return f"class{'es' if len(numbers) > 1 else ''} {listed(numbers)}"


def _renumbered(samples: Samples, numbers: np.ndarray) -> Samples:
    return Samples(samples.x, np.searchsorted(numbers, samples.y).astype(samples.y.dtype))


def _clients_left(natural: NaturalClients, train: np.ndarray, test: np.ndarray) -> NaturalClients:
    """The natural clients with the kept rows, renumbered, and without clients that have no training samples."""
    left = None if natural.test is None else kept(natural.test, test)
    clients = NaturalClients(natural.names, kept(natural.train, train), left)
    return clients.subset(np.flatnonzero(clients.train.sizes))


def kept(shards: Shards, rows: np.ndarray) -> Shards:
    """The shards with these rows alone, renumbered as rows of them."""
    stays = np.isin(shards.rows, rows)
    offsets = np.concatenate([[0], np.cumsum(stays)])[shards.offsets]
    return Shards(np.searchsorted(rows, shards.rows[stays]), offsets)


def choose_owners(dataset: Dataset, config: Owners) -> Dataset:
    """Keeps the chosen natural clients, in their original order.

    The choice depends only on the section and the number of natural clients. Samples of the others stay in the data set
    but belong to no client.

    Args:
        dataset: As returned by its source.
        config: The scenario's `data.owners`.

    Raises:
        DataError: The data has no natural clients, or fewer than the places or `of` need.
    """
    natural = dataset.natural
    if natural is None:
        raise DataError(f"data.owners: {dataset.name} has no natural clients to choose from; leave it out")
    available = len(natural.names)
    described = f"{dataset.name} has {available} natural clients"
    if config.of is not None and config.of > available:
        raise DataError(f"data.owners.of: {config.of}, but {described}; choose at most {available}")
    clients = np.sort(at_places(config, "owners", available, described))
    ranges = ", ".join(f"{start}-{stop - 1}" for start, stop in config.places)
    words = f"clients from places {ranges} of {available} natural clients"
    return replace(dataset, natural=natural.subset(clients), chosen=(*dataset.chosen, words))
