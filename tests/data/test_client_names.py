"""Names of natural clients reach the store from every kind of source, and stay with their samples."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.data import Data
from rayfl.data.dataset import ClientNames, NaturalClients, Shards
from rayfl.data.store import ShardStore, build_store
from tests.data.leaf_files import USERS, write_leaf
from tests.data.torch_datasets.scene import Items

N, SITES = 60, 6
NUMBER = (np.arange(N) * 7) % SITES
OWNER = np.array([f"site_{number}" for number in NUMBER])
"""The input of a sample is the number in the name of its owner."""
X, Y = NUMBER[:, None].astype(np.float32), np.arange(N) % 2


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_names_round_trip(texts: list[str]) -> None:
    names = ClientNames.of(texts)
    assert [names[client] for client in range(len(names))] == texts
    assert names == texts == list(names)
    assert names[1:] == texts[1:]
    assert names[::-2] == texts[::-2]
    assert list(map(names.index, texts)) == list(map(texts.index, texts))
    assert names != [*texts, "another"]
    assert not texts or names[-1] == texts[-1]


@pytest.mark.parametrize(
    "array", [np.arange(-1, 4), np.array(["b", "ä", ""]), np.array(["x"], np.dtypes.StringDType())]
)
def test_names_from_an_array_are_its_texts(array: np.ndarray) -> None:
    assert ClientNames.of(array) == [str(name) for name in array.tolist()]


def test_names_of_natural_clients_equal_those_given() -> None:
    shards = Shards.by_owner(np.array([0, 2, 1, 0]), 3)
    clients = NaturalClients(("eve", "bob", "ada"), shards, None)
    assert clients.names == ("eve", "bob", "ada")
    some = clients.subset(np.array([2, 0]))
    assert some.names == ("ada", "eve")
    assert [some.train[client].tolist() for client in range(2)] == [[1], [0, 3]]


def test_a_million_names_take_a_few_bytes_each() -> None:
    names = ClientNames.of([f"site_{client}" for client in range(1_000_000)])
    assert names.text.nbytes + names.ends.nbytes < 20_000_000
    assert len(pickle.dumps(names)) < 20_000_000
    assert names[999_999] == "site_999999"


def by_owner() -> Any:
    return {"train": (X, Y, OWNER), "test": (X, Y)}


def by_lists() -> Any:
    return {"train": (X, Y, {name: np.flatnonzero(name == OWNER) for name in sorted(set(OWNER))}), "test": (X, Y)}


def sample(first: int, row: int) -> Any:
    """Items that all have the same owner."""
    return X[first], row % 2


def datasets_of_sites() -> Any:
    sites = {name: Items(partial(sample, np.flatnonzero(name == OWNER)[0]), 10) for name in sorted(set(OWNER))}
    return {"train": sites, "test": Items(partial(sample, 0))}


def table(part: str = "train") -> pa.Table:
    return pa.table({"x": X[:, 0], "y": Y, "site": pa.array(OWNER), "split": pa.array([part] * N)})


def parquet(folder: Path, encoded: bool = False) -> dict[str, Any]:
    whole = pa.concat_tables([table(), table("test")]).combine_chunks()
    if encoded:
        whole = whole.set_column(2, "site", whole["site"].combine_chunks().dictionary_encode())
    pq.write_table(whole, folder / "it.parquet")
    options = {"path": str(folder / "it.parquet"), "inputs": "x", "label": "y", "owner": "site", "split": "split"}
    return {"name": "parquet_folder", "options": options}


def arrow(folder: Path) -> dict[str, Any]:
    whole = pa.concat_tables([table(), table("test")]).combine_chunks()
    with pa.ipc.new_file(str(folder / "it.arrow"), whole.schema) as writer:
        writer.write_table(whole)
    return {"name": "arrow_file", "options": parquet(folder)["options"] | {"path": str(folder / "it.arrow")}}


def huggingface(folder: Path) -> dict[str, Any]:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset(table()).save_to_disk(str(folder / "saved"))
    options = {"path": str(folder / "saved"), "inputs": "x", "label": "y", "owner": "site", "test_share": 0.5}
    return {"name": "huggingface", "options": options}


def npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "it.npz", train_x=X, train_y=Y, train_owner=OWNER, test_x=X, test_y=Y)
    return {"name": "npz_file", "options": {"path": str(folder / "it.npz")}}


SOURCES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "by_owner": lambda _: {"name": f"{__name__}:by_owner"},
    "by_lists": lambda _: {"name": f"{__name__}:by_lists"},
    "datasets_of_sites": lambda _: {"name": f"{__name__}:datasets_of_sites"},
    "parquet": parquet,
    "dictionary": lambda folder: parquet(folder, encoded=True),
    "arrow": arrow,
    "huggingface": huggingface,
    "npz": npz,
}


def store(data: dict[str, Any], folder: Path) -> ShardStore:
    return build_store(Data.model_validate(data), 0, folder, folder)


@pytest.mark.parametrize(
    "chosen", [{}, {"clients": 3}, {"owners": {"places": [[1, 4]]}}, {"server_share": 0.1}], ids=str
)
@pytest.mark.parametrize("source", SOURCES)
def test_every_client_has_the_name_of_its_samples(source: str, chosen: dict[str, Any], tmp_path: Path) -> None:
    found = store(SOURCES[source](tmp_path) | chosen, tmp_path)
    assert found.client_names is not None
    names = [found.client_names[client] for client in range(found.num_clients)]
    expected = 3 if {"clients", "owners"} & set(chosen) else SITES
    assert len(set(names)) == len(found.client_names) == found.num_clients == expected
    for client, name in enumerate(names):
        (number,) = {int(x) for x in np.asarray(found.train.x[found.train_shards[client]]).ravel()}
        assert name == f"site_{number}"


def test_writers_of_leaf_keep_their_names(tmp_path: Path) -> None:
    write_leaf(tmp_path / "femnist")
    found = store({"name": "femnist", "source": "files"}, tmp_path)
    assert found.client_names is not None
    assert [found.client_names[client] for client in range(3)] == sorted(USERS)


def test_other_partitions_have_no_names(tmp_path: Path) -> None:
    data = {"name": f"{__name__}:by_owner", "partition": "iid", "clients": 4}
    assert store(data, tmp_path).client_names is None
