"""Stops a run whose metric no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import NonNegativeFloat, PositiveInt

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.ranked import Ranked


class EarlyStopping(Ranked):
    """Stops a run after several evaluations in a row without an improvement on the best one.

    A stopped run leaves the model of its last round; `best_model` keeps the best one. An evaluation in which the labels
    of the clients drawn leave the metric undefined (`evaluation.clients`) does not count.

    Attributes:
        patience: Number of evaluations without an improvement that end the run.
        min_delta: The smallest change that counts as an improvement.
    """

    patience: PositiveInt = 5
    min_delta: NonNegativeFloat = 0.0

    _waited: int = 0

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        if not self.counts(run):
            return
        self._waited = 0 if self.improved(run, self.min_delta) else self._waited + 1
        if self._waited >= self.patience:
            best = f"best: {self._best:.6g} in round {self._best_round}" if self._best_round else "it was never finite"
            run.stop(f"{self.column(run)} has not improved in {self.patience} evaluations ({best})")

    def state(self) -> Mapping[str, Any]:
        """See `Callback.state`."""
        return {**super().state(), "waited": self._waited}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See `Callback.load_state`."""
        super().load_state(state)
        self._waited = state["waited"]
