"""Reports a run to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.tracker import Tracker


class WandB(Tracker):
    """Reports the metrics and the scenario to Weights & Biases.

    Attributes:
        project: The project there.
        mode: `offline` writes to `wandb/` in the run's folder, for `wandb sync`; `online` needs an account and a
            network.
    """

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str] = "wandb"

    project: str = "rayfl"
    mode: Literal["offline", "online"] = "offline"

    _wandb_run: Any = None

    def on_start(self, run: RunSoFar) -> None:
        """See `Callback.on_start`."""
        import wandb

        self._wandb_run = wandb.init(
            project=self.project,
            name=run.folder.name,
            dir=run.folder,
            mode=self.mode,
            config=run.scenario.model_dump(mode="json", exclude_none=True),
            reinit="create_new",  # a process may follow several runs at once
            settings=wandb.Settings(console="off", silent=True),
        )

    def report(self, round: int, numbers: Mapping[str, float]) -> None:
        """See `Tracker.report`."""
        self._wandb_run.log(dict(numbers), step=round)

    def on_end(self, run: RunSoFar) -> None:
        """See `Callback.on_end`."""
        if self._wandb_run is not None:
            self._wandb_run.finish(exit_code=0 if run.ended == "finished" else 1)
