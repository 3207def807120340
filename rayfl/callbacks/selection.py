"""Builds the callbacks that a scenario names, and checks those that a program passes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rayfl.callbacks import callbacks
from rayfl.callbacks.callback import Callback, Given
from rayfl.callbacks.ranking import EarlyStopping, Ranked
from rayfl.config.component import Choice, with_options
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.headline import headline_label
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.engine.plan.run_plan import RunPlan

CALLBACKS = Choice(callbacks, Callback)


def build_callbacks(scenario: Scenario) -> list[Callback]:
    """The callbacks that a scenario names, in order.

    Raises:
        ScenarioError: A name is unknown or not a callback's, an option is unknown or out of range, or a package is not
            installed.
    """
    built = []
    for index, chosen in enumerate(scenario.callbacks):
        try:
            callback: Callback = CALLBACKS.build(chosen)
            callback.check(scenario)
        except (ScenarioError, ValidationError) as error:
            raise ScenarioError(f"callbacks.{index}: {error}") from None
        built.append(callback)
    return built


def checked(items: Given, scenario: Scenario) -> list[Callback]:
    """The callbacks that a program passed in.

    Raises:
        ScenarioError: One is neither a callback nor a callback class, or does not fit the scenario.
    """
    instances = []
    for index, item in enumerate(items):
        where = f"callbacks[{index}]"
        if isinstance(item, type) and issubclass(item, Callback):
            item = with_options(item, {}, where)
        if not isinstance(item, Callback):
            raise ScenarioError(
                f"{where}: {item!r} is neither an instance nor a subclass of rayfl.Callback; name registered callbacks "
                "in the scenario"
            )
        if item._has_followed:
            raise ScenarioError(
                f"{where}: this object has already followed another run and still has its state; create a new one"
            )
        try:
            item.check(scenario)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        instances.append(item)
    return instances


def check_ranking_metrics(callbacks: Sequence[Callback], scenario: Scenario, store: ShardStore, where: str) -> None:
    """Checks that a run has the metrics by which callbacks rank its rounds.

    Args:
        callbacks: The callbacks.
        scenario: The run's scenario.
        store: Its data.
        where: The key of a callback, with {} for its number.

    Raises:
        ScenarioError: There is no such metric; names the nearest.
    """
    for index, callback in enumerate(callbacks):
        if isinstance(callback, Ranked):
            try:
                callback.check_metric(scenario, store)
            except ScenarioError as error:
                raise ScenarioError(f"{where.format(index)}.{error}") from None


def check_decisions(callback: Callback, run_plan: RunPlan, where: str) -> None:
    """Checks that a callback can decide by what it names; with differential privacy, that this is not clients' data.

    Test samples that belong to no client are public. Those that clients hold, or that were cut from their training
    samples, are private, and so is everything computed from training losses.

    Args:
        callback: A callback; only those that declare the column they decide by can be checked.
        run_plan: The run's plan.
        where: The callback's key, for the error message.

    Raises:
        ScenarioError: A target is not in the unit of the metric; or the run is private, and the callback decides by
            something other than a score on public samples.
    """
    if isinstance(callback, EarlyStopping):
        try:
            callback.check_target(run_plan.headlines)
        except ScenarioError as error:
            raise ScenarioError(f"{where}.{error}") from None
    column = callback.decides_by(run_plan.headlines)
    if column is None or not (run_plan.spending.epsilons or run_plan.accounting):
        return
    public = _public_columns(run_plan)
    if column not in public:
        level = "phases.N.dp" if run_plan.accounting else "local.dp"
        remedy = f"use metric = '{sorted(public)[0]}'" if public else "leave it out: this data has no public test set"
        raise ScenarioError(
            f"{where}.metric: '{column}' is computed from clients' data without noise, and with {level} no callback "
            f"may decide by it; {remedy}"
        )


def _public_columns(run_plan: RunPlan) -> set[str]:
    from rayfl.tasks.metrics.construction import metric_label  # loads PyTorch

    store = run_plan.result.store
    sets = [name for name, held in store.held_out.items() if held.shards is None]
    if store.test_shards is None:
        sets.append("test")
    evaluations = [run_plan.scenario.evaluation_of(phase) for phase in run_plan.scenario.phases]
    labels = {"loss", *(metric_label(metric) for evaluation in evaluations for metric in evaluation.metrics)}
    labels.update(headline_label(evaluation) for evaluation in evaluations)
    return {f"{name}_{label}" for name in sets for label in labels}
