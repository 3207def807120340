"""Sources of every kind of input, and folders prepared from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config.data import Data
from rayfl.data.inputs import Ragged, TextWindows
from rayfl.data.prepared import writer
from rayfl.data.prepared.manifest import Manifest
from rayfl.data.store import ShardStore, build_store

N, TESTS = 120, 30
RNG = np.random.default_rng(0)
OWNER = RNG.integers(0, 7, N)
TEST_OWNER = RNG.integers(0, 7, TESTS)
LABELS, TEST_LABELS = RNG.integers(0, 3, N), RNG.integers(0, 3, TESTS)
IMAGES, TEST_IMAGES = (RNG.integers(0, 256, (n, 6, 5, 3), np.uint8) for n in (N, TESTS))
TEXT = RNG.integers(0, 80, 200, np.uint8)
VECTORS, TEST_VECTORS = (RNG.normal(size=(n, 4)).astype(np.float32) for n in (N, TESTS))


def images() -> Any:
    """Images of natural clients, who have test samples too, and a further test set."""
    owners = (np.array([f"site {owner}" for owner in of]) for of in (OWNER, TEST_OWNER))
    train, test = zip((IMAGES, TEST_IMAGES), (LABELS, TEST_LABELS), owners, strict=True)
    return {"train": train, "test": test, "sketches": (TEST_IMAGES[:9], TEST_LABELS[:9])}


def vectors() -> Any:
    """Vectors that belong to nobody."""
    return VECTORS, LABELS, TEST_VECTORS, TEST_LABELS


def numbers() -> Any:
    """Single float64 numbers with vectors as labels."""
    return {
        "train": (VECTORS[:, 0].astype(np.float64), VECTORS, OWNER),
        "test": (TEST_VECTORS[:, 0].astype(np.float64), TEST_VECTORS),
    }


def words() -> Any:
    """Sequences of different lengths, some of them empty, and all of two clients."""
    ragged = [np.arange(0 if OWNER[number] in (2, 3) else number % 5) + number for number in range(N)]
    return {"train": (Ragged.of(ragged), LABELS, OWNER), "test": (Ragged.of(ragged[:TESTS]), TEST_LABELS)}


def named() -> Any:
    """Inputs by name: half precision, booleans, and pieces of rows."""

    def inputs(rows: int) -> Any:
        pieces = Ragged.of([np.full((1 + row % 3, 2), row, np.int16) for row in range(rows)])
        return {
            "half": np.arange(rows * 2, dtype=np.float16).reshape(rows, 2),
            "mask": np.arange(rows) % 3 == 0,
            "p": pieces,
        }

    return {"train": (inputs(N), LABELS, OWNER), "test": (inputs(TESTS), TEST_LABELS)}


def windows() -> Any:
    """Overlapping windows of a text."""
    starts = np.arange(N, dtype=np.int32)
    return {
        "train": (TextWindows(TEXT, starts, 8), LABELS, OWNER),
        "test": (TextWindows(TEXT, starts[:TESTS], 8), TEST_LABELS),
    }


def data(source: str, **tables: Any) -> Data:
    return Data.model_validate({"name": f"tests.data.prepared.scenes:{source}", **tables})


def from_disk(folder: Path, **tables: Any) -> Data:
    return Data.model_validate({"name": "prepared", "options": {"path": str(folder)}, **tables})


def stored(config: Data, seed: int = 0) -> ShardStore:
    return build_store(config, seed, Path(), Path())


def prepared(config: Data, folder: Path, seed: int = 0) -> Manifest:
    return writer.prepare(config, seed, Path(), Path(), folder, say=lambda line: None)


@pytest.fixture
def small_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several fragments of several record batches for the little that tests prepare, and several digests of each."""
    monkeypatch.setattr(writer, "FRAGMENT_BYTES", 4000)
    monkeypatch.setattr(writer, "BLOCK_BYTES", 300)
    monkeypatch.setattr("rayfl.data.prepared.manifest.CHUNK_BYTES", 256)
