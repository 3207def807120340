"""Keeps the best model of a run."""

from __future__ import annotations

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.model_file import keep_model
from rayfl.callbacks.ranked import Ranked

FILE = "best.safetensors"


class BestModel(Ranked):
    """Keeps the model of the best evaluated round as `best.safetensors` in the run's folder.

    Of several equally good rounds the first one counts. The file's metadata names the round.
    """

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        if self.counts(run) and self.improved(run):
            keep_model(run, run.folder / FILE)
