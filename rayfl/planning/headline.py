"""The metric that ranks rounds and runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from rayfl.config.execution import ClientStatistic, Evaluation
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.tasks.metrics.metric import Metric


@dataclass(frozen=True)
class Headline:
    """How the best round is found.

    Attributes:
        metric: Label of the metric.
        higher_is_better: Its direction.
        is_share: Whether it lies between 0 and 1, and is shown in percent.
        on: The set of samples on which the best round is chosen.
        phases: Names of the phases whose rounds can be compared by it; empty where those of all phases can.
    """

    metric: str = "accuracy"
    higher_is_better: bool = True
    is_share: bool = True
    on: str = "test"
    phases: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Headline:
        """What `dataclasses.asdict` made of a headline, and JSON of that."""
        return cls(**{**record, "phases": tuple(record.get("phases", ()))})

    def ranks(self, phase: str) -> bool:
        """Whether it ranks the rounds of a phase."""
        return not self.phases or phase in self.phases

    @property
    def column(self) -> str:
        """The column of the records that ranks rounds."""
        return f"{self.on}_{self.metric}"

    @property
    def reported(self) -> str:
        """The column whose value in the best round is the result: the metric on the test samples."""
        return f"test_{self.metric}"

    @property
    def words(self) -> str:
        """What ranks rounds, for a reader."""
        return self.column.replace("_", " ")

    @property
    def reported_words(self) -> str:
        """The result, for a reader."""
        return self.reported.replace("_", " ")

    def text(self, value: float) -> str:
        """A value for a reader, `45.20 %` or `1.234`."""
        return f"{100 * value:.2f} %" if self.is_share else f"{value:.4g}"

    def column_text(self, column: str, value: float) -> str:
        """A value of any column for a reader; statistics over clients too, variances in percent squared: `91.20 %²`."""
        for ending in ("", *(f"_{name}" for name in get_args(ClientStatistic))):
            if column.endswith(f"_{self.metric}{ending}"):
                squared = self.is_share and "variance" in ending
                return f"{10_000 * value:.2f} %²" if squared else self.text(value)
        return f"{value:.4g}"

    def best(self, values: Sequence[float]) -> int:
        """The place of the first best value; of values that are not finite only where there are no others."""
        sign = 1 if self.higher_is_better else -1
        ranked = [sign * value if math.isfinite(value) else -math.inf for value in values]
        return ranked.index(max(ranked))


def comparable_phases(scenario: Scenario, phase: Phase) -> tuple[str, ...]:
    """The phases whose scores mean the same as those of a phase: they have its task and metrics; empty for all."""

    def scored(phase: Phase) -> tuple[Named, tuple[Named, ...], str]:
        evaluation = scenario.evaluation_of(phase)
        return scenario.task_of(phase), evaluation.metrics, headline_label(evaluation)

    found = tuple(other.name for other in scenario.phases if scored(other) == scored(phase))
    return () if len(found) == len(scenario.phases) else found


def metrics_key(phase: Phase) -> str:
    """The key that names what is reported of a phase."""
    return "evaluation.metrics" if phase.metrics is None else f"phases.{phase.name}.metrics"


def headline_label(evaluation: Evaluation) -> str:
    """The label of the metric that ranks rounds, or "loss"."""
    from rayfl.tasks.metrics.building import metric_label  # loads PyTorch

    return evaluation.headline or metric_label(evaluation.metrics[0])


def headline_of(
    label: str,
    metrics: Mapping[str, Metric],
    on: str = "test",
    phases: tuple[str, ...] = (),
    where: str = "evaluation.headline",
) -> Headline:
    """The headline that a scenario names.

    Args:
        label: The metric's.
        metrics: All that are reported.
        on: See `Headline`.
        phases: See `Headline`.
        where: The key that names it.

    Raises:
        ScenarioError: The metric has no direction.
    """
    if label == "loss":
        return Headline("loss", higher_is_better=False, is_share=False, on=on, phases=phases)
    metric = metrics[label]
    if metric.higher_is_better is None:
        raise ScenarioError(
            f"{where}: it is not known whether a higher '{label}' is better; set higher_is_better with the "
            "metric, or choose another headline"
        )
    return Headline(label, metric.higher_is_better, metric.is_share, on, phases)
