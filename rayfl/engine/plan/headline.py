"""The metric that ranks rounds and runs, and how columns of the records read."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from rayfl.config.execution import NUMBER_OF_CLIENTS, ClientStatistic, Evaluation
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.tasks.metrics.metric import Metric


@dataclass(frozen=True)
class Headline:
    """The metric by which the best round is chosen.

    Attributes:
        metric: Label of the metric.
        higher_is_better: Whether higher values are better.
        is_share: Whether values lie between 0 and 1 and are shown in percent.
        on: The set of samples on which the best round is chosen.
        phases: Names of the phases whose rounds it can compare; empty if it can compare the rounds of all phases.
        shares: Labels of all metrics of those phases that lie between 0 and 1 and are shown in percent.
    """

    metric: str = "accuracy"
    higher_is_better: bool = True
    is_share: bool = True
    on: str = "test"
    phases: tuple[str, ...] = ()
    shares: tuple[str, ...] = ("accuracy",)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Headline:
        """Restores a headline from the result of `dataclasses.asdict`, also after a JSON round trip."""
        return cls(**{**record, **{name: tuple(record[name]) for name in ("phases", "shares") if name in record}})

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
        """The ranking metric in words."""
        return self.column.replace("_", " ")

    @property
    def reported_words(self) -> str:
        """The reported metric in words."""
        return self.reported.replace("_", " ")

    def text(self, value: float | None) -> str:
        """Formats a value as `45.20 %` or `1.234`; None as `undefined`."""
        if value is None:
            return "undefined"
        return f"{100 * value:.2f} %" if self.is_share else f"{value:.4g}"

    def column_text(self, column: str, value: float | None) -> str:
        """Formats a value of any column, also of statistics over clients; variances in percent squared: `91.20 %²`."""
        if value is None:
            return self.text(value)
        if column.endswith(f"_{NUMBER_OF_CLIENTS}"):
            return f"{value:,.0f}"
        factor, symbol = unit_of(column, self)
        return f"{factor * value:.2f} {symbol}" if symbol.startswith("%") else f"{value:.4g}"

    def best(self, values: Sequence[float | None]) -> int:
        """Index of the first best value; undefined and non-finite values only count if there are no others."""
        sign = 1 if self.higher_is_better else -1
        ranked = [-math.inf if value is None or not math.isfinite(value) else sign * value for value in values]
        return ranked.index(max(ranked))


PART = "/"
"""Before the name of a part in a column, such as a class: no label of a metric contains it."""


def part_column(column: str, part: str) -> str:
    """Returns the column of a part of a metric: `test_recall/3` is the recall of class 3."""
    return f"{column}{PART}{part}"


def is_part(column: str, columns: Container[str]) -> bool:
    """Whether a column, among others, has a part of a metric, such as the score of one class."""
    whole, part, _ = column.partition(PART)
    return bool(part) and whole in columns


_ENDING = re.compile(rf"_(mean|variance|variance_corrected|lowest_\d+|{NUMBER_OF_CLIENTS})$")


def statistic_over_clients(column: str, columns: Container[str]) -> re.Match[str] | None:
    """The ending of a column, among others, that has a statistic over clients.

    Their number, or in older records what the statistic is of, stands beside it: a metric may be called
    `explained_variance`.
    """
    ending = _ENDING.search(column)
    stem = column[: ending.start()] if ending else ""
    return ending if stem in columns or f"{stem}_{NUMBER_OF_CLIENTS}" in columns else None


def label_in(column: str, labels: Iterable[str]) -> str | None:
    """The longest label that a column is named after, alone or with a set of samples and a statistic over clients."""
    statistics = "|".join(get_args(ClientStatistic))
    matches = [label for label in labels if re.fullmatch(rf"(.*_)?{re.escape(label)}(_({statistics}))?", column)]
    return max(matches, key=len, default=None)


def words_of(column: str) -> str:
    """Returns the name of a column of the records as people read it.

    `client_test_rmse_lowest_20` is `client test rmse worst 20 %`: for an error, the worst clients have the highest.
    """
    words = re.sub(r"_lowest_(\d+)$", r" worst \1 %", column)
    return re.sub(rf"_{NUMBER_OF_CLIENTS}$", ", number of clients", words).replace("_", " ")


class Unit(NamedTuple):
    """How values of the records are shown: times `factor`, followed by `symbol`."""

    factor: float
    symbol: str


def unit_of(column: str, headline: Headline) -> Unit:
    """Returns the unit in which a column of the records is shown.

    Columns of metrics that are shares are in percent, and variances of them (`client_test_accuracy_variance`) in
    percent squared. Bytes are in megabytes. All others are shown unchanged.
    """
    if re.fullmatch("bytes(_down|_up)?", column):
        return Unit(1e-6, "MB")
    if column.endswith(f"_{NUMBER_OF_CLIENTS}"):
        return Unit(1, "")
    column = column.partition(PART)[0]
    label = label_in(column, [*headline.shares, headline.metric])
    if label is None or not (label in headline.shares or (label == headline.metric and headline.is_share)):
        return Unit(1, "")
    return Unit(1e4, "%²") if "_variance" in column.rpartition(label)[2] else Unit(100, "%")


def check_target(target: float, column: str, headline: Headline) -> None:
    """Checks that a target for a column is in the unit of the records.

    Raises:
        ScenarioError: The column is a share, and the target is not between 0 and 1.
    """
    if unit_of(column, headline).symbol == "%" and not 0 <= target <= 1:
        percent = f"; for {target:g} %, give {target / 100:g}" if 1 < target <= 100 else ""
        raise ScenarioError(f"target: {column} is a share between 0 and 1 (got {target:g}){percent}")


def comparable_phases(scenario: Scenario, phase: Phase) -> tuple[str, ...]:
    """The phases with the same task and metrics, whose scores are comparable; empty if all phases are."""

    def scored(phase: Phase) -> tuple[Named, tuple[Named, ...], str]:
        evaluation = scenario.evaluation_of(phase)
        return scenario.task_of(phase), evaluation.metrics, headline_label(evaluation)

    names = tuple(other.name for other in scenario.phases if scored(other) == scored(phase))
    return () if len(names) == len(scenario.phases) else names


def metrics_key(phase: Phase) -> str:
    """The scenario key that sets a phase's metrics."""
    return "evaluation.metrics" if phase.metrics is None else f"phases.{phase.name}.metrics"


def headline_label(evaluation: Evaluation) -> str:
    """The label of the metric that ranks rounds, or "loss"."""
    from rayfl.tasks.metrics.construction import metric_label  # loads PyTorch

    return evaluation.headline or metric_label(evaluation.metrics[0])


def headline_of(
    evaluation: Evaluation,
    metrics: Mapping[str, Metric],
    on: str = "test",
    phases: tuple[str, ...] = (),
    where: str = "evaluation.metrics",
) -> Headline:
    """The headline that a scenario names.

    Args:
        evaluation: Names the metrics and the headline.
        metrics: All reported metrics by label.
        on: See `Headline`.
        phases: See `Headline`.
        where: The scenario key that names the metrics.

    Raises:
        ScenarioError: The metric does not say whether higher is better.
    """
    from rayfl.tasks.metrics.construction import metric_label  # loads PyTorch

    label = headline_label(evaluation)
    shares = tuple(name for name, metric in metrics.items() if metric.is_share)
    if label == "loss":
        return Headline("loss", higher_is_better=False, is_share=False, on=on, phases=phases, shares=shares)
    metric = metrics[label]
    if metric.higher_is_better is None:
        name = next(named.name for named in evaluation.metrics if metric_label(named) == label)
        raise ScenarioError(
            f"{where}: '{label}' ranks the rounds, but does not say whether higher is better; write {{ name = "
            f'"{name}", higher_is_better = true }}, or false, or choose another headline'
        )
    return Headline(label, metric.higher_is_better, metric.is_share, on, phases, shares)
