"""Callbacks that rank rounds by one of the metrics: their base class, and the one that stops a run early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import FiniteFloat, NonNegativeFloat, PositiveInt, model_validator

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.registry import nearest
from rayfl.config.scenario import Scenario
from rayfl.engine.columns import columns_of
from rayfl.engine.plan.headline import Headline, check_target, headline_label
from rayfl.errors import ScenarioError
from rayfl.wording import counted

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


class Ranked(Callback):
    """Remembers the best evaluated round so far.

    Attributes:
        metric: A column of the metrics; by default the headline's.
        mode: Whether the smallest (`min`) or the largest (`max`) value is best; required unless the metric is the
            headline or a loss.
        phase: Only evaluations in this phase count; by default those of all phases with the same task and metrics as
            the last one, whose scores are comparable.
    """

    metric: str | None = None
    mode: Literal["min", "max"] | None = None
    phase: str | None = None

    _best: float | None = None
    _best_round: int = 0

    def check(self, scenario: Scenario) -> None:
        from rayfl.tasks.metrics.construction import metric_label  # loads PyTorch

        phases = {phase.name: phase for phase in scenario.phases}
        if self.phase is not None and self.phase not in phases:
            raise ScenarioError(f"phase: no phase is called '{self.phase}'; {nearest(self.phase, list(phases))}")
        ranked = scenario.phases[-1] if self.phase is None else phases[self.phase]
        evaluation = scenario.evaluation_of(ranked)
        if self.mode is not None or self.metric is None or _is_of(self.metric, headline_label(evaluation)):
            return
        if not _is_loss(self.metric, map(metric_label, evaluation.metrics)):
            raise ScenarioError(f"mode: set 'min' or 'max', whichever is best for '{self.metric}'")

    def check_metric(self, scenario: Scenario, store: ShardStore) -> None:
        """Checks that the rounds that it ranks have the metric, as far as that is known before the run.

        Raises:
            ScenarioError: They do not.
        """
        phase = next((phase for phase in scenario.phases if phase.name == self.phase), scenario.phases[-1])
        known = columns_of(scenario, phase, store)
        if self.metric is not None and known is not None and self.metric not in known:
            raise ScenarioError(f"metric: no metric is called '{self.metric}'; {nearest(self.metric, known)}")

    def decides_by(self, headlines: Mapping[str, Headline]) -> str:
        return self.metric or self._ranking(headlines).column

    def _ranking(self, headlines: Mapping[str, Headline]) -> Headline:
        return list(headlines.values())[-1] if self.phase is None else headlines[self.phase]

    def counts(self, run: RunSoFar) -> bool:
        """Whether the latest evaluation is ranked: one of its phase that the labels of the samples define.

        Raises:
            ScenarioError: The labels leave the metric undefined in every evaluation.
        """
        phase, column = run.metrics[-1]["phase"], self.column(run)
        if not (run.headline.ranks(phase) if self.phase is None else phase == self.phase):
            return False
        if column in run.undefined and run.scenario.evaluation.clients is None:  # else other clients may define it
            raise ScenarioError(
                f"metric: '{column}' ranks the rounds, but is undefined in all of them: no labels that it is computed "
                "of define it (as one class defines no ROC curve); rank by another, such as metric = 'test_loss', or "
                "evaluate on other samples"
            )
        return column not in run.undefined

    def improved(self, run: RunSoFar, min_delta: float = 0.0) -> bool:
        """Ranks the latest evaluation, and returns whether it is the best so far; a non-finite value never is.

        Args:
            run: The run; its latest row is ranked.
            min_delta: The smallest difference to the best evaluation so far that counts.

        Raises:
            ScenarioError: There is no such metric.
        """
        row, metric = run.metrics[-1], self.column(run)
        if metric not in row:
            numbers = [name for name, value in row.items() if not isinstance(value, str)]
            raise ScenarioError(f"metric: no metric is called '{metric}'; {nearest(metric, numbers)}")
        value = row[metric]
        if value is None:
            return False
        gain = None if self._best is None else (value - self._best) * self._sign(run)
        if gain is not None and not (gain > 0 and gain >= min_delta):
            return False
        self._best, self._best_round = float(value), row["round"]
        return True

    def state(self) -> Mapping[str, Any]:
        return {"best": self._best, "best_round": self._best_round, "by": [self.metric, self.mode, self.phase]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if state.get("by", by := self.state()["by"]) != by:  # it may rank by another metric when a run resumes
            return
        self._best, self._best_round = state["best"], state["best_round"]

    def column(self, run: RunSoFar) -> str:
        """The column that ranks the rounds."""
        return self.metric or self._headline(run).column

    def _headline(self, run: RunSoFar) -> Headline:
        return run.headline if self.phase is None else run.headlines[self.phase]

    def _sign(self, run: RunSoFar) -> int:
        if self.mode is not None:
            return 1 if self.mode == "max" else -1
        headline = self._headline(run)
        return 1 if _is_of(self.column(run), headline.metric) and headline.higher_is_better else -1  # else a loss


def _is_loss(column: str, labels: Iterable[str]) -> bool:
    """Whether a column holds a loss, and not a metric that is called so."""
    return column.endswith("_loss") and not any(column.endswith(f"_{label}") for label in labels)


def _is_of(column: str, metric: str | None) -> bool:
    """Whether a column holds a metric on any set of samples: `test_accuracy`, `validation_accuracy`."""
    return column.partition("_")[2] == metric


class EarlyStopping(Ranked):
    """Stops a run once a metric reaches a target, or after several evaluations in a row without an improvement.

    With both options, whichever comes first ends the run. A stopped run leaves the model of its last round;
    `best_model` keeps the best one. An evaluation in which the labels of the clients drawn leave the metric undefined
    (`evaluation.clients`) does not count. Rounds settle, so that the round after which it stops the run depends on the
    scenario alone.

    Attributes:
        patience: Number of evaluations without an improvement that end the run. Default: 5; with a target, any number.
        min_delta: The smallest change that counts as an improvement.
        target: The score that ends the run as soon as the metric is at least as good, in the unit of the records: 0.6
            for 60 %. Default: none.
    """

    patience: PositiveInt | None = None
    min_delta: NonNegativeFloat = 0.0
    target: FiniteFloat | None = None

    _waited: int = 0

    @model_validator(mode="before")
    @classmethod
    def _patience_by_default(cls, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("target") is None and options.get("patience") is None:
            return {**options, "patience": 5}
        return options

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        if self.patience is None and self.min_delta:
            raise ScenarioError("min_delta: has no effect without patience; leave it out")

    def check_target(self, headlines: Mapping[str, Headline]) -> None:
        """Checks that the target is in the unit of the records.

        Args:
            headlines: The metrics that rank the rounds of each phase, in order.

        Raises:
            ScenarioError: The metric is a share, and the target is not between 0 and 1.
        """
        if self.target is not None:
            check_target(self.target, self.decides_by(headlines), self._ranking(headlines))

    def on_evaluation(self, run: RunSoFar) -> None:
        if not self.counts(run):
            return
        self._waited = 0 if self.improved(run, self.min_delta) else self._waited + 1
        column, value = self.column(run), run.metrics[-1][self.column(run)]
        if self.target is not None and value is not None and (value - self.target) * self._sign(run) >= 0:
            run.stop(f"{column} has reached the target of {self.target:g}: {value:.6g}")
        elif self.patience is not None and self._waited >= self.patience:
            best = f"best: {self._best:.6g} in round {self._best_round}" if self._best_round else "it was never finite"
            run.stop(f"{column} has not improved in {counted(self.patience, 'evaluation')} ({best})")

    def state(self) -> Mapping[str, Any]:
        return {**super().state(), "waited": self._waited}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._waited = state["waited"]
