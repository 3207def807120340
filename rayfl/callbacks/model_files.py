"""Callbacks that keep models in the run's folder: the best one, and those at regular intervals of rounds."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.callbacks.ranking import Ranked
from rayfl.models.model_file import write_model


def keep_model(run: RunSoFar, path: Path) -> None:
    """Writes the model of the current round; the file's metadata names the round.

    Raises:
        ResourceError: The file cannot be written.
    """
    assert run.round is not None
    path.parent.mkdir(exist_ok=True)
    write_model(path, run.model(), {"round": str(run.round.round), "phase": run.round.phase})


BEST_MODEL = "best.safetensors"


class BestModel(Ranked):
    """Keeps the model of the best evaluated round as `best.safetensors` in the run's folder.

    Of several equally good rounds the first one counts. The file's metadata names the round. Rounds settle, since it
    reads their models.
    """

    def on_evaluation(self, run: RunSoFar) -> None:
        if self.counts(run) and self.improved(run):
            keep_model(run, run.folder / BEST_MODEL)


class PeriodicModel(Callback):
    """Keeps the model after every `every` rounds of the scenario, as `models/round_000010.safetensors`.

    Rounds settle, since it reads their models.

    Attributes:
        every: Number of rounds between two models.
        keep: Number of latest models to keep; by default all.
    """

    every: PositiveInt = 10
    keep: PositiveInt | None = None

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        round = run.round.round
        if round % self.every:
            return
        keep_model(run, _periodic_file(run, round))
        if self.keep is not None:
            _periodic_file(run, round - self.keep * self.every).unlink(missing_ok=True)


def _periodic_file(run: RunSoFar, round: int) -> Path:
    return run.folder / "models" / f"round_{round:06}.safetensors"
