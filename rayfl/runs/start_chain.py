"""Scenarios whose models other scenarios start from. Does not import PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from rayfl.config.loader import has_quick_form, load_scenario
from rayfl.config.overrides import table_overrides
from rayfl.config.scenario import Scenario, Start
from rayfl.errors import ScenarioError


class Starting(NamedTuple):
    """A scenario that others start from.

    Attributes:
        key: Identifies the scenario with its overrides.
        scenario: The scenario as it will run.
    """

    key: str
    scenario: Scenario


def scenario_to_start_from(start: Start) -> Scenario | None:
    """The scenario whose model is the start, as it will run; None for other kinds of start.

    Raises:
        ScenarioError: The scenario is invalid or starts from itself.
    """
    return next((link.scenario for link in list(starts_of(start))), None)


def starts_of(start: Start | None) -> Iterator[Starting]:
    """Yields the scenario that a model starts from, then the one that this scenario starts from, and so on.

    A seed in a start's overrides applies to the whole chain, up to a scenario whose own start overrides the seed. So
    does `quick`, up to a scenario whose own start sets it, or which has no quick form.

    Raises:
        ScenarioError: A scenario is invalid or starts from itself.
    """
    seen = set()
    while start is not None and start.scenario is not None:
        asked = start.model_dump(mode="json", include={"scenario", "overrides", "quick"})
        key = json.dumps(asked, sort_keys=True)
        if key in seen:
            raise ScenarioError(f"start.scenario: '{start.scenario}' starts from itself")
        seen.add(key)
        try:
            scenario = load_scenario(start.scenario, list(table_overrides(start.overrides)), start.quick)
        except ScenarioError as error:
            raise ScenarioError(f"start.scenario: {error}") from None
        if scenario.start is not None:
            scenario = scenario.model_copy(update={"start": _passed_on(scenario.start, start)})
        yield Starting(key, scenario)
        start = scenario.start


def _passed_on(start: Start, above: Start) -> Start:
    """A start within a chain, with the seed and `quick` of the start above it."""
    if start.scenario is None:
        return start
    seed = {"seed": above.overrides["seed"]} if "seed" in above.overrides else {}
    quick = above.quick and "quick" not in start.model_fields_set and has_quick_form(start.scenario)
    return start.model_copy(update={"overrides": {**seed, **start.overrides}, "quick": start.quick or quick})


def with_starts(scenario: Scenario) -> list[Scenario]:
    """A scenario, the one that it starts from, the one that this scenario starts from, and so on.

    Raises:
        ScenarioError: A scenario is invalid or starts from itself.
    """
    return [scenario, *(link.scenario for link in starts_of(scenario.start))]
