"""Overrides of the scenarios that the cells of a grid start from: `start.overrides` of the grid, a row or a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rayfl.config.overrides import table_overrides
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError

_STARTS = "start.overrides."


def split_starts(pairs: Iterable[tuple[str, Any]]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Separates overrides of the scenarios that cells start from, by their key paths there, from those of the cells."""
    pairs = list(pairs)
    starts: dict[str, Any] = {}
    for key, value in pairs:
        if key == _STARTS[:-1] and isinstance(value, Mapping):
            starts |= dict(table_overrides(value))
        elif key.startswith(_STARTS):
            starts[key.removeprefix(_STARTS)] = value
    return starts, [pair for pair in pairs if not f"{pair[0]}.".startswith(_STARTS)]


def of_column(column: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """A column's overrides of the starts of its rows, and all others; a column with a start of its own has none."""
    starts, rest = split_starts(pairs := list(table_overrides(column)))
    own = any(key.partition(".")[0] == "start" for key, _ in rest)
    return ({}, pairs) if own else (starts, rest)


def with_starts(cell: Scenario, before: dict[str, Any], after: dict[str, Any], quick: bool) -> Scenario:
    """The cell, with overrides applied to the scenario that it starts from, if any."""
    start = cell.start
    if start is None or start.scenario is None:
        return cell
    own = dict(table_overrides(start.overrides))
    if "seed" in {**before, **own, **after}:
        raise ScenarioError("start.overrides.seed: the grid's `seeds` set it; leave it out")
    inherited = {key: value for key, value in before.items() if key not in own}
    update = {"overrides": {**inherited, **start.overrides, **after}, "quick": start.quick or quick}
    return cell.model_copy(update={"start": start.model_copy(update=update)})
