"""A run inside a trial of Ray Tune reports its metrics to the trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rayfl.cluster.kept_cluster import cluster_of_trials
from tests.callbacks.scene import PLAIN, run, tables

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def trial(config: dict[str, Any]) -> None:
    run(Path(config["out"]) / str(config["given"]["lr"]), "inline", **scene(**config["given"]))


def scene(lr: float, named: list[str]) -> dict[str, Any]:
    return {"phases": [{**PLAIN, "local": {**PLAIN["local"], "lr": lr}}], "named": named}


@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_each_evaluated_round_is_a_result_of_the_trial_whether_the_scenario_names_the_callback_or_not(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pandas", reason="rayfl[tune] is not installed")
    from ray import tune

    trials: list[dict[str, Any]] = [{"lr": 0.05, "named": []}, {"lr": 0.2, "named": ["ray_tune"]}]
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"given": tune.grid_search(trials), "out": str(tmp_path / "runs")},
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    results = tuner.fit()
    assert len(results) == len(trials)
    for given, result in ((given, results[number]) for number, given in enumerate(trials)):
        assert result.error is None
        assert result.config is not None
        assert result.config["given"] == given
        assert result.metrics is not None
        assert result.metrics_dataframe is not None
        expected = run(tmp_path / "here", **scene(given["lr"], [])).metrics
        assert result.metrics_dataframe["test_loss"].tolist() == expected["test_loss"].to_pylist()
        assert result.metrics["round"] == 4


def trial_on_hosts(config: dict[str, Any]) -> None:
    result = run(Path(config["out"]), "ray", **tables(phases=[PLAIN], resources={"hosts": 1}, seed=config["seed"]))
    kept = cluster_of_trials()
    assert kept is not None
    assert kept.actors._actors is not None
    (host,) = kept.actors._actors.hosts
    (Path(config["out"]) / f"{config['seed']}.json").write_text(
        json.dumps([host.actor._actor_id.hex(), result.metrics["test_loss"].to_pylist()])
    )


@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_a_trial_gets_the_hosts_of_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="rayfl[tune] is not installed")
    from ray import tune

    tuner = tune.Tuner(
        tune.with_resources(trial_on_hosts, tune.PlacementGroupFactory([{"CPU": 1.0}, {"CPU": 1.0}])),
        param_space={"seed": tune.grid_search([1, 2, 3]), "out": str(tmp_path)},
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    results = tuner.fit()
    assert [results[number].error for number in range(len(results))] == [None] * 3
    hosts = set()
    for seed in (1, 2, 3):
        host, losses = json.loads((tmp_path / f"{seed}.json").read_text())
        hosts.add(host)
        assert losses == run(tmp_path / "here", **tables(phases=[PLAIN], seed=seed)).metrics["test_loss"].to_pylist()
    assert len(hosts) == 1
