"""Windows over the text of speaking roles: the samples of next-character prediction.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, and its code: windows of 80 characters,
stride 1; the target is the next character. The windows of a role are split in order, and the 79 windows after the
training part, which share characters with its last window, are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.inputs import TextWindows
from rayfl.errors import DataError

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 symbols of LEAF; the index of a symbol is its label."""

UNKNOWN = VOCABULARY.index(" ")
"""Replaces every other character. LEAF uses -1, which is not a valid network input."""

LENGTH = 80

_SYMBOLS = np.full(256, UNKNOWN, np.uint8)
_SYMBOLS[[ord(character) for character in VOCABULARY]] = np.arange(len(VOCABULARY))


def encoded(text: str) -> np.ndarray:
    """[len(text)] uint8: index of each character in the vocabulary."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    symbols: np.ndarray = _SYMBOLS[np.where(code_points < 256, code_points, ord(" "))]
    return symbols


@dataclass(frozen=True)
class Role:
    """One speaking role, a natural client.

    Attributes:
        text: [m] uint8, symbols.
        train: [n] integers, starts of its training windows in the text; each has 80 symbols, followed by the target.
        test: [n] integers, likewise for its test windows.
    """

    name: str
    text: np.ndarray
    train: np.ndarray
    test: np.ndarray


def split(name: str, text: str, train_share: float) -> Role:
    """All windows of a text: the first floor(train_share * n), at least one, and those that overlap none of them."""
    symbols = encoded(text)
    windows = max(0, len(symbols) - LENGTH)
    train = min(windows, max(1, int(train_share * windows)))
    return Role(name, symbols, np.arange(train), np.arange(train + LENGTH - 1, windows))


def cropped(role: Role, amount: int, rng: np.random.Generator) -> Role | None:
    """`amount` consecutive training windows and a fifth as many test windows, at random positions; None if too few."""
    if len(role.train) <= amount or len(role.test) <= amount // 5:
        return None
    return replace(role, train=_run(role.train, amount, rng), test=_run(role.test, amount // 5, rng))


def _run(starts: np.ndarray, amount: int, rng: np.random.Generator) -> np.ndarray:
    first = rng.integers(len(starts) - amount)
    return starts[first : first + amount]


def roles_dataset(name: str, roles: Iterable[Role], too_short: str, provenance: Provenance) -> Dataset:
    """Builds a data set from roles with a training and a test window, its natural clients in the order given.

    Raises:
        DataError: There are no such roles; `too_short` says what to change.
    """
    kept = [role for role in roles if len(role.train) and len(role.test)]
    if not kept:
        raise DataError(f"{name}: no role has enough text for a training window and a test window; {too_short}")
    text = np.concatenate([role.text for role in kept])
    offsets = np.cumsum([0, *(len(role.text) for role in kept)])
    train, test = [role.train for role in kept], [role.test for role in kept]
    return Dataset(
        name=name,
        train=_samples(text, offsets, train),
        test=_samples(text, offsets, test),
        num_classes=len(VOCABULARY),
        provenance=provenance,
        natural=NaturalClients(tuple(role.name for role in kept), _consecutive(train), _consecutive(test)),
    )


def _samples(text: np.ndarray, offsets: np.ndarray, starts: Sequence[np.ndarray]) -> Samples:
    # 4 bytes per window and 1 per label, since there are as many windows as characters.
    parts = zip(starts, offsets[:-1], strict=True)
    begins = np.concatenate([(part + offset).astype(np.int32) for part, offset in parts])
    return Samples(TextWindows(text, begins, LENGTH), text[begins + LENGTH])


def _consecutive(parts: Sequence[np.ndarray]) -> Shards:
    offsets = np.cumsum([0, *map(len, parts)])
    return Shards(np.arange(offsets[-1]), offsets)
