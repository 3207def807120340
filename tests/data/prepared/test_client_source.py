"""Data that comes client by client, by `sizes` and `load`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data.store import ShardStore
from rayfl.errors import DataError
from rayfl.streams import stream
from tests.data.prepared.scenes import data, from_disk, prepared, small_fragments, stored

SIZES = [3, 9, 1, 6, 4, 2, 8, 5, 7, 10, 11]


class Sensors:
    """Clients with readings around their own number."""

    def __init__(self, edit: Callable[[int, Any], Any] = lambda client, pair: pair, sizes: Any = SIZES) -> None:
        self._edit, self._sizes = edit, sizes

    def sizes(self) -> Any:
        return self._sizes

    def load(self, client: int, rng: np.random.Generator) -> Any:
        x = rng.normal(client, 1, (SIZES[client], 4)).astype(np.float32)
        return self._edit(client, (x, np.arange(len(x)) % 3))


def sensors(**how: Any) -> dict[str, Any]:
    return {"train": Sensors(**how), "test": (np.zeros((5, 4), np.float32), np.arange(5) % 3)}


def fails(client: int, pair: Any) -> Any:
    if client == 2:
        raise KeyError("reading")
    return pair


def short() -> Any:
    return sensors(edit=lambda client, pair: (pair[0][1:], pair[1]) if client == 2 else pair)


def wide() -> Any:
    return sensors(edit=lambda client, pair: (pair[0].astype(np.float64), pair[1]) if client == 2 else pair)


def lone() -> Any:
    return sensors(edit=lambda client, pair: pair[0])


def failing() -> Any:
    return sensors(edit=fails)


def unsized() -> Any:
    return sensors(sizes="many")


def of(source: str) -> Any:
    return data(source).model_copy(update={"name": f"tests.data.prepared.test_client_source:{source}"})


def check(store: ShardStore, seed: int) -> None:
    assert store.train_shards.sizes.tolist() == SIZES
    assert list(store.client_names or ()) == [str(client) for client in range(len(SIZES))]
    for client, size in enumerate(SIZES):
        rows = store.train_shards[client]
        drawn = stream(seed, "client train", client).normal(client, 1, (size, 4)).astype(np.float32)
        assert np.array_equal(store.train.x[rows], drawn)
        assert store.train.y[rows].tolist() == [row % 3 for row in range(size)]


@pytest.mark.usefixtures(small_fragments.__name__)
@pytest.mark.parametrize("seed", [0, 3])
def test_each_client_has_what_load_returns_for_it_and_its_stream(seed: int, tmp_path: Path) -> None:
    check(stored(of("sensors"), seed), seed)
    prepared(of("sensors"), tmp_path, seed)
    check(stored(from_disk(tmp_path)), seed)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("short", r"train: client 2: load\(\) returned float32\[0, 4\] and int64\[1\], but sizes\(\) says 1 samples"),
        ("wide", r"client 2: load\(\) returned float64\[4\] a sample, but float32\[4\] of the clients before"),
        ("lone", r"client 0: load\(\) returned an object of type ndarray; return \(x, y\)"),
        ("failing", r"train: client 2.*KeyError"),
        ("unsized", r"sizes\(\) returned <U4\[\]; return a number for each client"),
    ],
)
def test_what_does_not_fit_is_named(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        stored(of(source))
