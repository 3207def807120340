"""`data.seed`: draws for the data are separate from draws for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare


def tables(scenario_seed: int, **data: Any) -> dict[str, Any]:
    return {
        "seed": scenario_seed,
        "data": {
            "name": "tests.user_code:vectors",
            "clients": 4,
            "partition": {"name": "dirichlet", "beta": 0.5, "min_size": 2},
            **data,
        },
        "model": "tests.user_code:Linear",
        "phases": [{"name": "federated", "rounds": 1, "cohort": 2}],
        "evaluation": {"samples": 10},
    }


def prepared(tmp_path: Path, scenario_seed: int, **data: Any) -> tuple[ShardStore, FlatModel]:
    job, model = prepare(load_scenario(tables(scenario_seed, **data)), tmp_path)
    return job.result.store, model


def split(store: ShardStore) -> tuple[Any, ...]:
    rows = [store.train_shards[client].tolist() for client in range(store.num_clients)]
    return rows, np.asarray(store.test.x).tolist()


def test_three_training_seeds_share_one_split_and_start_from_different_models(tmp_path: Path) -> None:
    runs = [prepared(tmp_path, seed, seed=9) for seed in (0, 1, 2)]
    splits = [split(store) for store, _ in runs]
    assert splits[0] == splits[1] == splits[2]
    assert len({model.vector.numpy().tobytes() for _, model in runs}) == 3


def test_the_seed_of_the_data_defaults_to_that_of_the_scenario(tmp_path: Path) -> None:
    assert split(prepared(tmp_path, 3)[0]) == split(prepared(tmp_path, 5, seed=3)[0])
    assert split(prepared(tmp_path, 3)[0]) != split(prepared(tmp_path, 5)[0])


def test_a_resolved_scenario_keeps_both_seeds() -> None:
    for seed in (None, 0, 4):
        scenario = Scenario.from_tables(tables(1, **({} if seed is None else {"seed": seed})))
        assert load_scenario({**tables(1), **scenario.model_dump(exclude_none=True)}).data_seed == scenario.data_seed
        assert scenario.data_seed == (1 if seed is None else seed)


@pytest.mark.parametrize("wrong", [-1, 1.5, "x"])
def test_an_invalid_seed_raises(wrong: Any) -> None:
    with pytest.raises(ScenarioError, match=r"data\.seed"):
        load_scenario(tables(0, seed=wrong))
