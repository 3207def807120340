"""A run inside a trial of Ray Tune reports its metrics to the trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.scene import PLAIN, run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def trial(config: dict[str, Any]) -> None:
    run(Path(config["out"]) / str(config["given"]["lr"]), "inline", **scene(**config["given"]))


def scene(lr: float, named: list[str]) -> dict[str, Any]:
    return {"phases": [{**PLAIN, "local": {**PLAIN["local"], "lr": lr}}], "named": named}


@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_each_evaluated_round_is_a_result_of_the_trial_whether_the_scenario_names_the_callback_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Tune would leave its handler behind
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
