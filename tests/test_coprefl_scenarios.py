"""CoPreFL's scenarios: pre-training does not use the data of downstream tasks; scores of their clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import rayfl
from rayfl.config import load_scenario
from rayfl.data.files import cache_folder
from rayfl.data.store import ShardStore, build_store
from rayfl.data.subsets import at_places, chosen_numbers

pytestmark = pytest.mark.usefixtures("cache_of_its_own")


def classes(name: str, data_seed: int, count: int) -> set[int]:
    config = load_scenario(name, [f"data.seed={data_seed}"]).data.classes
    assert config is not None
    return set(chosen_numbers(config, count, data_seed, name).tolist())


def store(name: str, *overrides: str, quick: bool = False) -> ShardStore:
    scenario = load_scenario(name, ["data.source=generated", *overrides], quick)
    return build_store(scenario.data, scenario.data_seed, Path("nowhere"), cache_folder())


@pytest.mark.parametrize(("data", "count", "held_back"), [("cifar100", 100, 20), ("tiny_imagenet", 200, 40)])
def test_tasks_are_five_classes_that_pre_training_has_not_seen(data: str, count: int, held_back: int) -> None:
    seen = classes(f"{data}_pretraining", 0, count)
    assert len(seen) == count - held_back
    tasks = [classes(f"{data}_downstream", seed, count) for seed in range(10)]
    assert all(len(task) == 5 and not task & seen for task in tasks)
    assert len({tuple(sorted(task)) for task in tasks}) == 10


def test_mixed_tasks_are_from_ten_classes_of_either_kind() -> None:
    seen = classes("cifar100_pretraining", 0, 100)
    config = load_scenario("cifar100_downstream_mixed").data.classes
    assert config is not None
    pool = set(at_places(config, "classes", 100, "x").tolist())
    assert (len(pool & seen), len(pool - seen)) == (10, 10)
    assert config.draw == 5


@pytest.mark.parametrize("quick", [False, True])
def test_no_writer_of_a_task_has_taken_part_in_pre_training(quick: bool) -> None:
    before, task = (load_scenario(f"femnist_{part}", quick=quick).data for part in ("pretraining", "downstream"))
    assert before.owners is not None
    assert task.owners is not None
    assert before.owners.of == task.owners.of
    sides = [at_places(owners, "owners", before.owners.of or 0, "x") for owners in (before.owners, task.owners)]
    assert not set(sides[0]) & set(sides[1])
    assert (before.clients, len(sides[1])) == ((30, 10) if quick else (300, 85))
    assert task.clients == 10


@pytest.mark.parametrize(
    "name",
    ["cifar100_downstream", pytest.param("tiny_imagenet_downstream", marks=pytest.mark.slow), "pacs_downstream"],
)
@pytest.mark.slow
def test_clients_of_a_task_train_on_four_fifths_of_their_samples(name: str) -> None:
    found = store(name)
    shards = found.held_out["client_test"].shards
    assert shards is not None
    every = found.train_shards.sizes + shards.sizes
    np.testing.assert_array_equal(shards.sizes, np.maximum(1, np.rint(every / 5)).astype(int))
    assert found.num_clients == 10
    assert found.num_classes == (7 if name.startswith("pacs") else 5)


def test_pre_training_on_pacs_has_the_other_domains() -> None:
    before, task = (load_scenario(f"pacs_{part}").data.options["domains"] for part in ("pretraining", "downstream"))
    assert sorted([*before, *task]) == ["art_painting", "cartoon", "photo", "sketch"]
    assert task == ["sketch"]


@pytest.mark.parametrize(("name", "scored"), [("femnist_downstream", "test"), ("cifar100_downstream", "client_test")])
@pytest.mark.slow
def test_every_client_of_a_task_is_scored_on_its_own_test_samples(tmp_path: Path, name: str, scored: str) -> None:
    result = rayfl.run(
        name,
        overrides=["data.source=generated", "phases.federated.rounds=2"],
        quick=True,
        backend="inline",
        out=tmp_path,
    )
    rows = [row for row in pq.read_table(result.directory / "clients.parquet").to_pylist() if row["set"] == scored]
    assert {row["round"] for row in rows} == {2}
    assert sorted(row["client"] for row in rows) == list(range(10))
    assert all(0 <= row["accuracy"] <= 1 and row["samples"] > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["femnist", "cifar100"])
def test_on_real_files_pre_training_and_tasks_share_no_image_nor_class(data: str, data_dir: Path) -> None:
    def images(part: str) -> set[bytes]:
        scenario = load_scenario(f"{data}_{part}", ["data.source=files"])
        found = build_store(scenario.data, scenario.data_seed, data_dir, cache_folder())
        return {image.tobytes() for image in np.asarray(found.train.x)}

    before, task = images("pretraining"), images("downstream")
    assert not before & task
    assert len(before) > 10 * len(task) > 0
