"""`data.owners`: which natural clients may be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.data import Data, Owners
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.store import ShardStore, build_store
from rayfl.data.subsets import choose_owners
from rayfl.errors import DataError

HERE = "tests.data.test_chosen_owners"
WRITERS = 20


def written(clients: int | None = None) -> Dataset:
    """Three training and two test samples of each writer; the input is the writer."""
    count = clients or WRITERS
    parts = []
    for each in (3, 2):
        owner = np.random.default_rng(each).permutation(np.repeat(np.arange(count), each))
        parts.append((Samples(owner[:, None].astype(float), owner % 2), Shards.by_owner(owner, count)))
    (train, train_shards), (test, test_shards) = parts
    names = tuple(f"w{writer:02d}" for writer in range(count))
    return Dataset(
        "written", train, test, 2, Provenance("arrays", ""), NaturalClients(names, train_shards, test_shards)
    )


def numbers() -> tuple[Any, ...]:
    return np.zeros((6, 1)), np.arange(6) % 2, np.zeros((6, 1)), np.arange(6) % 2


def store(owners: dict[str, Any], seed: int = 0, **data: Any) -> ShardStore:
    tables = {"name": f"{HERE}:written", **data, "owners": owners}
    return build_store(Data.model_validate(tables), seed, Path(), Path())


def writers(found: ShardStore) -> list[int]:
    """The writer of each client."""
    return [int(np.asarray(found.train.x)[found.train_shards[c][0], 0]) for c in range(found.num_clients)]


@given(st.integers(1, WRITERS - 1), st.integers(0, 100))
def test_writers_at_other_places_are_not_used_and_all_keep_their_samples(cut: int, order: int) -> None:
    whole = written()
    found: list[str] = []
    for place in ((0, cut), (cut, WRITERS)):
        natural = choose_owners(whole, Owners(places=(place,), order_seed=order)).natural
        assert natural is not None
        assert natural.test is not None
        assert len(natural.names) == place[1] - place[0]
        assert list(natural.names) == sorted(natural.names)
        for client, name in enumerate(natural.names):
            for samples, shards in ((whole.train, natural.train), (whole.test, natural.test)):
                of_client = np.asarray(samples.x)[shards[client], 0]
                assert set(of_client) == {int(name[1:])}
                assert len(of_client) == (3 if samples is whole.train else 2)
        found += natural.names
    assert sorted(found) == [f"w{writer:02d}" for writer in range(WRITERS)]


def test_clients_are_drawn_from_the_chosen_ones_with_the_datas_seed() -> None:
    held_back = set(writers(store({"places": [[12, 20]]})))
    assert len(held_back) == 8
    tasks = [writers(store({"places": [[12, 20]]}, seed, clients=3)) for seed in range(8)]
    assert all(set(task) <= held_back and len(set(task)) == 3 for task in tasks)
    assert len(set(map(tuple, tasks))) > 4
    assert not held_back & set(writers(store({"places": [[0, 12]]}, clients=12)))


def test_clients_are_tested_on_their_own_samples() -> None:
    found = store({"places": [[4, 9]]}, clients=3)
    assert found.test_shards is not None
    assert len(found.test) == 6
    for client, writer in enumerate(writers(found)):
        assert np.asarray(found.test.x)[found.test_shards[client], 0].tolist() == [writer, writer]


def test_the_order_is_random_and_has_its_own_seed() -> None:
    first = writers(store({"places": [[0, 6]]}, 0))
    assert first == writers(store({"places": [[0, 6]]}, 1)) != list(range(6))
    assert first != writers(store({"places": [[0, 6]], "order_seed": 1}, 0))


def test_a_generated_source_makes_as_many_as_the_order_needs() -> None:
    found = store({"places": [[20, 30]], "of": 30}, clients=4)
    assert found.num_clients == 4
    assert "; clients from places 20-29 of 30 natural clients" in found.summary()


@pytest.mark.parametrize(
    ("owners", "data", "message"),
    [
        ({"places": [[15, 21]]}, {}, r"owners\.places: the last range ends at 21, but written has 20 natural clients"),
        ({"places": [[0, 4]]}, {"clients": 5}, r"5 were asked for, but written \(clients from places 0-3 of .* has 4"),
        ({"places": [[0, 1]]}, {"name": f"{HERE}:numbers"}, r"data\.owners: .*numbers has no natural clients"),
    ],
)
def test_missing_clients_and_places_are_named(owners: dict[str, Any], data: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        store(owners, **data)


def test_an_order_of_too_many_clients_is_named() -> None:
    with pytest.raises(DataError, match=r"data\.owners\.of: 21, but written has 20 natural clients; choose at"):
        choose_owners(written(), Owners(places=((0, 2),), of=21))
