"""Builds natural clients from the owner of every sample, or from the rows of every client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rayfl.data.checking import unmasked
from rayfl.data.dataset import NaturalClients, Shards
from rayfl.data.partition.checking import checked_shards
from rayfl.errors import DataError


def natural_clients(sizes: Mapping[str, int], given: Mapping[str, Any], what: str) -> NaturalClients | None:
    """Builds the clients that a source defines.

    Args:
        sizes: Number of samples by set.
        given: For `train`, and optionally for `test`: owners [n], integers or strings, or the rows of every client, a
            mapping from names to lists or a list of lists. Clients are in the order of the sorted owners, or of the
            lists.
        what: The source, for messages.

    Returns:
        The clients, or None if nothing is given.

    Raises:
        DataError: `given` has another form, a row does not exist or appears twice, or a client is in `test` but not in
            `train`.
    """
    for part in given:
        if part not in ("train", "test"):
            raise DataError(f"{what}: {part} has owners; only 'train' and 'test' belong to clients")
    if "train" not in given:
        if given:
            raise DataError(f"{what}: test has owners, but train has none")
        return None
    names, train = _named_shards(given["train"], sizes["train"], what, "train")
    if "test" not in given:
        return NaturalClients(names, train, None)
    found, shards = _named_shards(given["test"], sizes["test"], what, "test")
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := [name for name in found if name not in numbers]:
        raise DataError(
            f"{what}: test has samples of '{unknown[0]}', but train has none; leave out the owners of test, so that "
            "its samples belong to no client"
        )
    owner = np.repeat([numbers[name] for name in found], shards.sizes)
    test = Shards.by_owner(owner, len(names))
    return NaturalClients(names, train, Shards(shards.rows[test.rows], test.offsets))


def _named_shards(given: Any, number: int, what: str, part: str) -> tuple[tuple[str, ...], Shards]:
    """The clients' names and their rows."""
    if (lists := _lists(given)) is not None:
        if not lists:
            raise DataError(f"{what}: {part} names no clients; give the rows of at least one")
        for name, one in lists.items():
            if one.ndim != 1:
                raise DataError(f"{what}: {part}: the rows of '{name}' are {one.dtype}{list(one.shape)}; give a list")
        rows = list(lists.values())
        shards = Shards(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
        return tuple(map(str, lists)), checked_shards(shards, number, None, f"{what}: {part}")
    owner = np.asarray(unmasked(np.asanyarray(given), f"{what}: the owners of {part}"))
    if owner.dtype == object and all(isinstance(one, str) for one in owner.flat):  # as pandas stores strings
        owner = owner.astype(str)
    if owner.shape != (number,) or owner.dtype.kind not in "uiUT":
        raise DataError(
            f"{what}: the owners of {part} are {owner.dtype}{list(owner.shape)} for {number} samples; give an integer "
            "or a string for each, or the rows of every client"
        )
    names, owner = np.unique(owner, return_inverse=True)
    return tuple(map(str, names.tolist())), Shards.by_owner(owner, len(names))


def _lists(given: Any) -> dict[Any, np.ndarray] | None:
    """The rows of every client by name, if `given` has this form; clients of a list are named by their number."""
    if isinstance(given, list | tuple) and len(given) and np.ndim(given[0]) == 1:
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        return None
    rows = {name: np.asarray(one) for name, one in given.items()}
    return {name: one if one.size else one.astype(np.int64) for name, one in rows.items()}
