"""Reports a run's metrics to the trial of Ray Tune that it is part of."""

from __future__ import annotations

import sys

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError


class RayTune(Callback):
    """Reports every evaluated round to the trial, under the names of the metrics' columns.

    A run inside a trial does so by itself; named in a scenario, it says that the scenario is for trials only.
    """

    def check(self, scenario: Scenario) -> None:
        """See `Callback.check`."""
        if not in_trial():
            raise ScenarioError("ray_tune reports to a trial of Ray Tune, and this program is none; leave it out")

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        from ray import tune

        tune.report({name: value for name, value in run.metrics[-1].items() if value is not None})


def in_trial() -> bool:
    """Whether this program is a function that Ray Tune runs as a trial."""
    if "ray.tune" not in sys.modules:  # which a trial has loaded, and which needs rayfl[tune]
        return False
    from ray.tune.trainable.trainable_fn_utils import _in_tune_session

    return bool(_in_tune_session())
