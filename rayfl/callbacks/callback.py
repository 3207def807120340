"""The interface of callbacks, and the view of a run that they receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.console import Console

from rayfl.config.component import Component
from rayfl.config.scenario import Scenario
from rayfl.engine.columns import METRICS
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.headline import Headline
from rayfl.errors import RayflError

if TYPE_CHECKING:
    from torch import Tensor

Ending = Literal["finished", "failed", "interrupted"]


@dataclass
class RunSoFar:
    """A run as its callbacks see it: the state after one round, even if later rounds are already under way.

    Attributes:
        scenario: The scenario that runs, with every default written out.
        headline: The metric that ranks the rounds of the run: that of the last phase.
        folder: The run's folder, where callbacks may write files.
        console: Where the run's progress is printed.
        round: The latest round, or the one that was evaluated; None before the first.
        metrics: One row for each evaluated round, including the current one, as in metrics.jsonl; a value that is
            undefined or not finite is None.
        undefined: Columns of the latest row that the labels leave undefined, whatever the model.
        ended: How the run ended, once it has: `finished`, `failed` or `interrupted`.
        stopped: The callback that made the current round the last one, and its reason.
        read_model: Reads the model for `model`.
        caller: The callback that is being called.
        logged: What this callback and those before it logged in this call.
        headlines: The metric that ranks the rounds of each phase.

    Example:
        A callback reads the run and may stop it:

        >>> import rayfl
        >>> class FirstRound(rayfl.Callback):
        ...     def on_evaluation(self, run):
        ...         run.log(parameters=sum(tensor.numel() for tensor in run.model().values()))
        ...         run.stop(f"round {run.round.round} is enough")
        >>> scenario = {
        ...     "data": {"name": "handwriting", "clients": 4},
        ...     "model": "mlp",
        ...     "phases": [{"schedule": "parallel", "rounds": 50, "cohort": 2}],
        ... }
        >>> result = rayfl.run(scenario, callbacks=[FirstRound], backend="inline", quiet=True)
        >>> result.metrics.select(["round", "parameters"]).to_pylist()
        [{'round': 1, 'parameters': 209662.0}]
    """

    scenario: Scenario
    headline: Headline
    folder: Path
    console: Console
    read_model: Callable[[], Mapping[str, Tensor]]
    round: RoundDone | None = None
    metrics: list[Mapping[str, Any]] = field(default_factory=list)
    undefined: frozenset[str] = frozenset()
    ended: Ending | None = None
    stopped: tuple[str, str] | None = None
    caller: str = ""
    logged: dict[str, float] = field(default_factory=dict)
    headlines: Mapping[str, Headline] = field(default_factory=dict)

    def model(self) -> Mapping[str, Tensor]:
        """The model of the current round, with PyTorch's names and layout, on the CPU.

        Raises:
            RayflError: The callback does not need rounds to settle (`Callback.settles`).
        """
        return self.read_model()

    def log(self, **scalars: float) -> None:
        """Adds columns to this round's row of the metrics, if the round is evaluated.

        Args:
            scalars: The values by column name.

        Raises:
            RayflError: The metrics already have a column of that name.
        """
        taken = {*METRICS.names, *self.logged, *(self.round.scalars if self.round else ())}
        if self.round and self.metrics and self.metrics[-1]["round"] == self.round.round:
            taken.update(self.metrics[-1])
        for name in scalars:
            if name in taken:
                raise RayflError(f"logs '{name}', but the metrics already have a column of that name; choose another")
        self.logged.update({name: float(value) for name, value in scalars.items()})

    def stop(self, reason: str) -> None:
        """Makes the current round the last one; if rounds do not settle, the first one after it where that is possible.

        In a private run, privacy.json names the callback (`ended_early`), since the privacy accounting does not cover
        what a callback reads to decide.

        Args:
            reason: Written to status.json; if several callbacks stop the run, the first one's reason counts.
        """
        self.stopped = self.stopped or (self.caller, reason)


class Callback(Component):
    """Follows a run and may stop it; every method is optional.

    The fields of a subclass are its options in the scenario; attributes that begin with an underscore are its state.

    For each round, rayfl calls `on_round` once the round is committed, then `on_evaluation` if it is evaluated, before
    it reports anything about the next round. So what a callback sees, and the round at which it stops the run, do not
    depend on the backend, the number of workers or timing. Later rounds that are already under way are discarded.

    A callback that only reports can set `settles = False`, so that rounds need not wait for each other's evaluation.
    It is shown the same rounds and rows in the same order, but `on_round` may be called for later rounds before
    `on_evaluation`, which still receives its own round and row. It cannot read models, and the round at which it stops
    a run depends on timing.

    Callbacks run in the process that started the run. Each object follows one run.

    Attributes:
        settles: Whether each round must settle: be evaluated and reported before a later one is committed. Rounds
            settle if one of the run's callbacks needs it.

    Example:
        >>> import rayfl
        >>> from pydantic import PositiveInt
        >>> class Budget(rayfl.Callback):
        ...     bytes: PositiveInt
        ...
        ...     def on_round(self, run):
        ...         if run.round.traffic.bytes >= self.bytes:
        ...             run.stop(f"{self.bytes} bytes were sent")
        >>> scenario = {
        ...     "data": {"name": "handwriting", "clients": 4},
        ...     "model": "mlp",
        ...     "phases": [{"schedule": "parallel", "rounds": 50, "cohort": 2}],
        ... }
        >>> result = rayfl.run(scenario, callbacks=[Budget(bytes=1)], backend="inline", quiet=True)
        >>> len(result.metrics)
        1
    """

    settles: ClassVar[bool] = True

    _has_followed: bool = False

    def check(self, scenario: Scenario) -> None:
        """Raises a `ScenarioError` if the callback does not fit the scenario; called before anything starts."""

    def decides_by(self, headlines: Mapping[str, Headline]) -> str | None:
        """The column of the metrics by which the callback stops the run or chooses a model; None if there is none.

        With differential privacy, rayfl rejects a column that is computed from clients' data without noise.

        Args:
            headlines: The metrics that rank the rounds of each phase, in order.
        """
        return None

    def on_start(self, run: RunSoFar) -> None:
        """Called when the workers are ready, before the first round."""

    def on_round(self, run: RunSoFar) -> None:
        """Called after every round."""

    def on_evaluation(self, run: RunSoFar) -> None:
        """Called after the evaluation of a round; `run.metrics[-1]` is its row."""

    def on_end(self, run: RunSoFar) -> None:
        """Called once the run has ended, successfully or not (`run.ended`), if `on_start` was called."""

    def state(self) -> Mapping[str, Any]:
        """Returns the state to continue from after the latest round: text, finite numbers, booleans, lists, dicts."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned; called before `on_start` when a run resumes.

        `on_start` then receives the run after its latest round, with all rows of its metrics so far.
        """


Given = Sequence[Callback | type[Callback]]
"""Callbacks that a program passes in, in addition to those that a scenario names."""
