"""A run inside a trial of Ray Tune reports its metrics to the trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.callbacks.scene import PLAIN, run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def trial(config: dict[str, Any]) -> None:
    phase = {**PLAIN, "local": {**PLAIN["local"], "lr": config["lr"]}}
    run(Path(config["out"]) / str(config["lr"]), "inline", phases=[phase], named=config["named"])


@pytest.mark.filterwarnings("ignore")  # Tune's own
@pytest.mark.parametrize("named", [[], ["ray_tune"]], ids=["by itself", "named"])
def test_each_evaluated_round_is_a_result_of_the_trial(tmp_path: Path, named: list[str]) -> None:
    pytest.importorskip("pandas", reason="rayfl[tune] is not installed")
    from ray import tune

    space = {"lr": tune.grid_search([0.05, 0.2]), "out": str(tmp_path / "runs"), "named": named}
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space=space,
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    results = tuner.fit()
    for result in (results[0], results[1]):
        assert result.error is None
        assert result.config is not None
        assert result.metrics is not None
        assert result.metrics_dataframe is not None
        expected = run(
            tmp_path / "here", phases=[{**PLAIN, "local": {**PLAIN["local"], "lr": result.config["lr"]}}]
        ).metrics
        assert result.metrics_dataframe["test_loss"].tolist() == expected["test_loss"].to_pylist()
        assert result.metrics["round"] == 4
