"""Keeps the best model of a run."""

from __future__ import annotations

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.model_file import keep_model
from rayfl.callbacks.ranked import Ranked

FILE = "best.safetensors"


class BestModel(Ranked):
    """Keeps the model of the best evaluated round as `best.safetensors` in the run's folder.

    The first of several rounds that are equally good counts; the file's metadata says which round it is.
    """

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        if self.counts(run) and self.improved(run):
            keep_model(run, run.folder / FILE)
