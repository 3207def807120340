"""Validation of the result of a user-defined partitioner."""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfl.data.dataset import Shards
from rayfl.errors import DataError

_EXPECTED = (
    "a partitioner returns rayfl.data.Shards, or the owner of every training sample as [n] integers in 0..clients-1"
)


def checked_shards(found: Any, num_samples: int, clients: int | None, what: str) -> Shards:
    """Checks what a partitioner returned and converts it to `Shards`.

    Args:
        found: `Shards`, or an array (or list) with the owner of every sample.
        num_samples: Number of training samples.
        clients: Number of clients that the scenario asks for; None if it leaves this to the partitioner.
        what: Name of the partitioner, for error messages.

    Raises:
        DataError: The result has another type or shape, contains a row that does not exist or that is used twice, or
            has the wrong number of clients.
    """
    shards = found if isinstance(found, Shards) else _from_owners(found, num_samples, clients, what)
    rows, offsets = shards.rows, shards.offsets
    parts: tuple[tuple[str, Any], ...] = (("rows", rows), ("offsets", offsets))
    for name, array in parts:
        if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise DataError(f"{what} returned Shards whose {name} are {_in_words(array)}, not a vector of integers")
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
        raise DataError(
            f"{what} returned Shards whose offsets do not rise from 0 to {len(rows)}, the number of their rows; client "
            "c owns rows[offsets[c]:offsets[c + 1]]"
        )
    if clients is not None and len(shards) != clients:
        raise DataError(f"{what} returned shards of {len(shards)} clients, but data.clients is {clients}")
    if len(rows) and not 0 <= rows.min() <= rows.max() < num_samples:
        outside = rows.min() if rows.min() < 0 else rows.max()
        raise DataError(
            f"{what} returned row {outside}, but the {num_samples} training samples are rows 0 to {num_samples - 1}"
        )
    uses = np.bincount(rows, minlength=num_samples)
    if uses.max(initial=0) > 1:
        row = int(uses.argmax())
        owners = np.searchsorted(offsets, np.flatnonzero(rows == row)[:2], side="right") - 1
        raise DataError(
            f"{what} returned row {row} more than once (clients {owners[0]} and {owners[1]}); a sample belongs to one "
            "client at most"
        )
    return shards


def _from_owners(found: Any, num_samples: int, clients: int | None, what: str) -> Shards:
    try:
        owner = np.asarray(found)
    except Exception:  # an arbitrary object may raise anything when converted
        owner = np.empty(0, object)
    if owner.shape != (num_samples,) or not np.issubdtype(owner.dtype, np.integer):
        seen = _in_words(found)
        raise DataError(f"{what} returned {seen} for {num_samples} training samples; {_EXPECTED}")
    count = int(owner.max()) + 1 if clients is None else clients
    if owner.min() < 0 or owner.max() >= count or count > num_samples:
        raise DataError(
            f"{what} returned owners from {owner.min()} to {owner.max()} for {num_samples} training samples"
            + ("" if clients is None else f" and {clients} clients")
            + "; clients are numbered from 0, and there are at most as many as samples"
        )
    return Shards.by_owner(owner, count)


def _in_words(found: Any) -> str:
    if isinstance(found, np.ndarray):
        return f"an array {found.dtype}{list(found.shape)}"
    return "None" if found is None else f"an object of type {type(found).__name__}"
