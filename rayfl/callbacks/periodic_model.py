"""Keeps a model at regular intervals of rounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.callbacks.model_file import keep_model


class PeriodicModel(Callback):
    """Keeps the model after every `every` rounds of the scenario, as `models/round_000010.safetensors`.

    Attributes:
        every: Number of rounds between two models.
        keep: Number of latest models to keep; by default all.
    """

    every: PositiveInt = 10
    keep: PositiveInt | None = None

    def on_round(self, run: RunSoFar) -> None:
        """See `Callback.on_round`."""
        assert run.round is not None
        round = run.round.round
        if round % self.every:
            return
        keep_model(run, _file(run, round))
        if self.keep is not None:
            _file(run, round - self.keep * self.every).unlink(missing_ok=True)


def _file(run: RunSoFar, round: int) -> Path:
    return run.folder / "models" / f"round_{round:06}.safetensors"
