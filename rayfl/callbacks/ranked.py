"""Callbacks that rank rounds by one of the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.registry import nearest

LOWER_IS_BETTER = {"test_loss": "min", "train_loss": "min"}
HIGHER_IS_BETTER = {"test_accuracy": "max", "personalized_accuracy": "max"}


class Ranked(Callback):
    """Remembers the best evaluated round so far.

    Attributes:
        metric: A column of the metrics.
        mode: Whether the least (`min`) or the greatest (`max`) value is best; needed for what is neither a loss nor
            an accuracy.
        phase: Only evaluations in this phase count; by default all do.
    """

    metric: str = "test_accuracy"
    mode: Literal["min", "max"] | None = None
    phase: str | None = None

    _best: float | None = None
    _best_round: int = 0

    def check(self, scenario: Scenario) -> None:
        """See `Callback.check`."""
        if self.mode is None and self.metric not in LOWER_IS_BETTER | HIGHER_IS_BETTER:
            raise ScenarioError(f"mode: say whether 'min' or 'max' of '{self.metric}' is best")
        names = [phase.name for phase in scenario.phases]
        if self.phase is not None and self.phase not in names:
            raise ScenarioError(f"phase: no phase is called '{self.phase}'; {nearest(self.phase, names)}")

    def counts(self, run: RunSoFar) -> bool:
        """Whether the latest evaluation is ranked."""
        return self.phase is None or run.metrics[-1]["phase"] == self.phase

    def improved(self, run: RunSoFar, min_delta: float = 0.0) -> bool:
        """Ranks the latest evaluation; a value that is not finite is never the best.

        Args:
            run: Its latest row.
            min_delta: By how much it must be better than the best one so far.

        Raises:
            ScenarioError: There is no such metric.
        """
        row = run.metrics[-1]
        if self.metric not in row:
            numbers = [name for name, value in row.items() if not isinstance(value, str)]
            raise ScenarioError(f"metric: no metric is called '{self.metric}'; {nearest(self.metric, numbers)}")
        value = row[self.metric]
        if value is None:
            return False
        gain = None if self._best is None else (value - self._best) * self._sign()
        if gain is not None and not (gain > 0 and gain >= min_delta):
            return False
        self._best, self._best_round = float(value), row["round"]
        return True

    def state(self) -> dict[str, Any]:
        """See `Callback.state`."""
        return {"best": self._best, "best_round": self._best_round}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See `Callback.load_state`."""
        self._best, self._best_round = state["best"], state["best_round"]

    def _sign(self) -> int:
        return -1 if (self.mode or LOWER_IS_BETTER.get(self.metric)) == "min" else 1
