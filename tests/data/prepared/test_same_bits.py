"""Data that is prepared and read from disk trains and scores as the same data in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.data.batches import BatchSource
from rayfl.data.prepared.fragments import FragmentRows, MappedLabels
from rayfl.data.store import ShardStore
from tests.data.prepared.scenes import data, from_disk, prepared, small_fragments, stored

pytestmark = pytest.mark.usefixtures(small_fragments.__name__)

COLLATE = "tests.data.prepared.test_same_bits:lengths"
KINDS: dict[str, dict[str, Any]] = {
    "images": {},
    "vectors": {"clients": 5, "partition": {"name": "dirichlet", "beta": 1.0}},
    "numbers": {},
    "words": {"collate": "pad"},
    "named": {"collate": COLLATE},
    "windows": {},
}
RUN_KEYS = ("collate",)
"""What a run says of prepared data; all else is in the folder."""


def lengths(inputs: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    sums = [[float(one["half"].sum()), float(one["mask"]), float(one["p"].sum()), len(one["p"])] for one in inputs]
    return {"x": torch.tensor(sums)}


def batches(store: ShardStore) -> list[Any]:
    """The bits of the batches of every client, and of every set."""
    source, found = BatchSource(store, torch.device("cpu")), list[Any]()
    for client in range(store.num_clients):
        rows = np.random.default_rng(client).permutation(store.train_shards[client])
        found += source.training_batches(rows, 4, np.random.default_rng(client))
    for name, held in store.held_out.items():
        shards = (
            [np.arange(len(held.samples))]
            if held.shards is None
            else [*map(held.shards.__getitem__, range(len(held.shards)))]
        )
        found += [source.batch(name, rows) for rows in shards]
    found.append(source.test_batch(slice(0, len(store.test))))
    if store.test_shards is not None:
        found += [source.test_batch(store.test_shards[client]) for client in range(store.num_clients)]
    if store.server is not None:
        found.append(source.batch("server", slice(0, len(store.server))))
    return [[bits(x), bits(y)] for x, y in found]


def bits(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: bits(tensor) for name, tensor in values.items()}
    return values.dtype, values.shape, values.numpy().tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shares", [{}, {"validation_share": 0.2, "test_share": 0.1}])
def test_every_kind_of_input_gives_the_batches_of_the_source(
    kind: str, shares: dict[str, float], tmp_path: Path
) -> None:
    source = data(kind, **KINDS[kind])
    prepared(source, tmp_path)
    of_run = {key: value for key, value in KINDS[kind].items() if key in RUN_KEYS}
    before, after = stored(source.model_copy(update=shares)), stored(from_disk(tmp_path, **of_run, **shares))
    assert batches(after) == batches(before)
    assert np.array_equal(after.train_shards.sizes, before.train_shards.sizes)
    assert after.client_names == before.client_names
    assert after.num_classes == before.num_classes
    assert after.summary() == before.summary()
    assert after.provenance.source == before.provenance.source


@pytest.mark.parametrize(
    "choice",
    [
        {"classes": {"places": [[0, 2]]}},
        {"owners": {"places": [[1, 4]]}},
        {"clients": 3},
        {"clients": 3, "seed": 5},
        {"partition": "natural"},
    ],
)
def test_natural_clients_and_classes_can_be_chosen_in_a_run(choice: dict[str, Any], tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    seed = choice.get("seed", 0)
    before, after = stored(data("images", **choice), seed), stored(from_disk(tmp_path, **choice), seed)
    assert batches(after) == batches(before)
    assert after.client_names == before.client_names


def test_choices_and_test_samples_dealt_by_class_are_kept_when_data_is_prepared(tmp_path: Path) -> None:
    for name, more in {"chosen": {"classes": {"places": [[0, 2]]}}, "dealt": {}}.items():
        kind = "images" if name == "chosen" else "vectors"
        source = data(kind, **more, **({} if name == "chosen" else {"clients": 4, "partition": "shards"}))
        prepared(source, tmp_path / name)
        before, after = stored(source), stored(from_disk(tmp_path / name))
        assert batches(after) == batches(before)
        assert after.chosen == before.chosen


def test_a_scenario_that_partitions_some_classes_runs_with_data_prepared_from_it(tmp_path: Path) -> None:
    choice = {"clients": 4, "partition": {"name": "dirichlet", "beta": 5.0}, "classes": {"places": [[0, 2]]}}
    source = data("vectors", **choice)
    prepared(source, tmp_path)
    assert batches(stored(from_disk(tmp_path, **choice))) == batches(stored(source))


def test_a_run_has_the_same_bits_as_from_memory(tmp_path: Path) -> None:
    source = {"name": "tests.data.prepared.scenes:images", "validation_share": 0.2, "augment": ["flip"]}
    prepared(data("images"), tmp_path / "it")
    models: list[bytes] = []
    for tables in (source, source | {"name": "prepared", "options": {"path": str(tmp_path / "it")}}):
        phase = {"name": "p", "rounds": 2, "cohort": 3, "local": {"lr": 0.1, "batch_size": 4, "epochs": 2}}
        scenario = {"data": tables, "model": {"name": "mlp", "hidden": [6]}, "phases": [phase]}
        out = tmp_path / str(len(models))
        result = rayfl.run(scenario, backend="inline", out=out, data_dir=out, console=Console(quiet=True))
        models.append((result.directory / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_what_is_sent_to_hosts_grows_neither_with_samples_nor_with_fragments(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    store = stored(from_disk(tmp_path))
    assert isinstance(store.train.x, FragmentRows)
    assert isinstance(store.train.y, MappedLabels)
    assert len(pickle.dumps(store.train)) < 700
    received = pickle.loads(pickle.dumps(store))  # noqa: S301 - as Ray does between its own processes
    received.reopen()
    assert batches(received) == batches(store)
    part = pickle.loads(pickle.dumps(store.train.y[3:5]))  # noqa: S301 - likewise
    assert part.tolist() == store.train.y.tolist()[3:5]


def test_rows_are_selected_like_those_of_an_array(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    rows = stored(from_disk(tmp_path)).train.x
    plain, mask = rows[:], np.arange(len(rows)) % 7 == 3
    for chosen in (np.array([-1, 5, 5, 0]), mask, slice(3, 40, 4), slice(None, None, -1), np.array([], np.int64)):
        assert np.array_equal(rows[chosen], plain[chosen])
        if isinstance(chosen, np.ndarray):
            assert np.array_equal(rows.take(chosen)[::-1], plain[chosen][::-1])
    with pytest.raises(IndexError, match="rows 0 to 120 of 120"):
        rows[np.array([0, 120])]
