"""Reports a run's metrics to the trial of Ray Tune that it is part of."""

from __future__ import annotations

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.cluster.tune import in_trial, report_to_trial
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError


class RayTune(Callback):
    """Reports every evaluated round to the trial, under the names of the metrics' columns.

    Runs inside a trial use it automatically; naming it in a scenario restricts the scenario to trials.
    """

    def check(self, scenario: Scenario) -> None:
        """See `Callback.check`."""
        if not in_trial():
            raise ScenarioError("ray_tune reports to a trial of Ray Tune, but this program is not one; leave it out")

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        report_to_trial({name: value for name, value in run.metrics[-1].items() if value is not None})
