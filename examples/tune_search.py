"""A learning-rate search with Ray Tune, whose trials reuse worker processes.

    pip install 'rayfl[tune]'
    python examples/tune_search.py

A run inside a trial reports every evaluated round to Tune, whose schedulers (ASHA, ...) can stop bad trials early.
With `reuse_actors`, a trial takes over the worker processes of the one before and starts in a second instead of ten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import tune

import rayfl

HOSTS = 1
RUNS = Path("runs").absolute()  # every trial has its own working directory


def trial(config: dict[str, Any]) -> None:
    """Runs the scenario; the configuration from Tune overrides its values."""
    overrides: dict[str, Any] = {"data.source": "generated", "phases.federated.until": 8, "resources.hosts": HOSTS}
    rayfl.run("femnist_fedavg", quick=True, overrides=overrides | config, out=RUNS, quiet=True)


def main() -> tune.ResultGrid:
    """Runs the trials, with one CPU for each trial and one for each of its worker processes."""
    bundles = [{"CPU": 1.0}, *[{"CPU": 1.0}] * HOSTS]
    tuner = tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory(bundles)),
        param_space={"phases.federated.local.lr": tune.grid_search([0.03, 0.1, 0.3])},
        tune_config=tune.TuneConfig(metric="test_accuracy", mode="max", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(RUNS / "tune"), verbose=1),
    )
    found = tuner.fit()
    best = found.get_best_result()
    assert best.metrics is not None
    print(f"best: {best.config}, accuracy {best.metrics['test_accuracy']:.1%}")
    return found


if __name__ == "__main__":
    main()
