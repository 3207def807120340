"""Builds the callbacks that a scenario names, and checks those that a program passes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rayfl.callbacks import callbacks
from rayfl.callbacks.callback import Callback, Given
from rayfl.callbacks.ranking import Ranked
from rayfl.config.component import Choice, with_options
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore

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
