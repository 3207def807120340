"""Writes a run's metrics for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.tracker import Tracker

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Writes the metrics, and the scenario as text, to `tensorboard/` in the run's folder.

    `tensorboard --logdir runs` shows all runs.
    """

    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)
    extra: ClassVar[str] = "tensorboard"

    _writer: Any = None

    def on_start(self, run: RunSoFar) -> None:
        """See `Callback.on_start`."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(run.folder / FOLDER)
        self._writer.add_text("scenario", f"```\n{run.scenario.to_toml()}\n```")

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        """See `Tracker.report`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def on_end(self, run: RunSoFar) -> None:
        """See `Callback.on_end`."""
        if self._writer is not None:
            self._writer.close()
