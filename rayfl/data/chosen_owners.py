"""`data.owners`: a data set restricted to some of its natural clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rayfl.config.subsets import Owners
from rayfl.data.dataset import Dataset, NaturalClients
from rayfl.data.random_order import at_places
from rayfl.errors import DataError


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
    found = np.sort(at_places(config, "owners", available, described))
    left = NaturalClients(
        tuple(natural.names[int(client)] for client in found),
        natural.train.subset(found),
        None if natural.test is None else natural.test.subset(found),
    )
    ranges = ", ".join(f"{start}-{stop - 1}" for start, stop in config.places)
    words = f"clients from places {ranges} of {available} natural clients"
    return replace(dataset, natural=left, chosen=(*dataset.chosen, words))
