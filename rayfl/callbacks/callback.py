"""The interface of callbacks, and what they are shown of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from rayfl.component import Component
from rayfl.config.scenario import Scenario
from rayfl.errors import RayflError
from rayfl.planning.events import RoundDone
from rayfl.planning.headline import Headline
from rayfl.report.columns import METRICS

if TYPE_CHECKING:
    from torch import Tensor

Ending = Literal["finished", "failed", "interrupted"]


@dataclass
class RunSoFar:
    """A run as its callbacks see it: after some round, whatever is already under way.

    Attributes:
        scenario: What runs, every default written out.
        headline: The metric that ranks the rounds of the run, the last phase's.
        folder: The run's own, for files.
        console: Where the run's progress is printed.
        round: The latest round; None before the first.
        metrics: A row for each evaluated round, the present one included: what metrics.jsonl holds, where a value that
            is not finite is None.
        ended: How the run ended, once it has.
        stopped: Who made the present round the last one, and why.
        read_model: For `model`.
        caller: The callback that is being called.
        logged: What it and those before it logged in this call.
        headlines: The metric that ranks the rounds of each phase.
    """

    scenario: Scenario
    headline: Headline
    folder: Path
    console: Console
    read_model: Callable[[], Mapping[str, Tensor]]
    round: RoundDone | None = None
    metrics: list[Mapping[str, Any]] = field(default_factory=list)
    ended: Ending | None = None
    stopped: tuple[str, str] | None = None
    caller: str = ""
    logged: dict[str, float] = field(default_factory=dict)
    headlines: Mapping[str, Headline] = field(default_factory=dict)

    def model(self) -> Mapping[str, Tensor]:
        """The model of the present round, in PyTorch's names and layout, on the CPU."""
        return self.read_model()

    def log(self, **scalars: float) -> None:
        """Adds columns to the row of this round, if it is evaluated.

        Raises:
            RayflError: There is a column of such a name.
        """
        taken = {*METRICS.names, *self.logged, *(self.round.scalars if self.round else ())}
        if self.round and self.metrics and self.metrics[-1]["round"] == self.round.round:
            taken.update(self.metrics[-1])
        for name in scalars:
            if name in taken:
                raise RayflError(f"logs '{name}', of which name the metrics have a column already; choose another")
        self.logged.update({name: float(value) for name, value in scalars.items()})

    def stop(self, reason: str) -> None:
        """Makes the present round the last one.

        In a private run, privacy.json says who did so (`ended_early`): what a callback read to decide is in no account.

        Args:
            reason: Stands in status.json; where several callbacks stop the run, the first one's does.
        """
        self.stopped = self.stopped or (self.caller, reason)


class Callback(Component):
    """Follows a run; every method is optional.

    The fields of a subclass are its options in the scenario; attributes that begin with an underscore are its state:

        class Budget(Callback):
            bytes: PositiveInt

            def on_round(self, run):
                if run.round.traffic.bytes >= self.bytes:
                    run.stop(f"{self.bytes} bytes were sent")

    For each round `on_round` is called once it is committed, then `on_evaluation` if it is evaluated, before anything
    of the next round is reported. So what a callback sees does not depend on the backend, the number of hosts or
    timing, and neither does the round at which it stops the run, although later rounds may be under way on the hosts:
    their work is discarded.

    Callbacks run in the process that started the run. An object follows one run.
    """

    _has_followed: bool = False

    def check(self, scenario: Scenario) -> None:
        """Raises a ScenarioError if it does not fit the scenario; called before anything starts."""

    def decides_by(self, headlines: Mapping[str, Headline]) -> str | None:
        """The column of the metrics by which it ends the run or chooses a model; None where it declares none.

        With differential privacy a column is refused that is read from clients' data without noise.

        Args:
            headlines: What ranks the rounds of each phase, in order.
        """
        return None

    def on_start(self, run: RunSoFar) -> None:
        """Called when the hosts are ready, before the first round."""

    def on_round(self, run: RunSoFar) -> None:
        """Called after every round."""

    def on_evaluation(self, run: RunSoFar) -> None:
        """Called when a round was evaluated; `run.metrics[-1]` is its row."""

    def on_end(self, run: RunSoFar) -> None:
        """Called once the run has ended, well or not (`run.ended`), if `on_start` was called."""

    def state(self) -> Mapping[str, Any]:
        """What it needs to go on after the latest round: text, finite numbers, truth values, lists and tables."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` returned; called before `on_start` where a run is reopened.

        `on_start` is then shown the run after its latest round, with all rows of its metrics so far.
        """


Given = Sequence[Callback | type[Callback]]
"""Callbacks that a program hands over, in place of or beside those that a scenario names."""
