"""Scenarios that cells start from: the first cell that requires one runs it, and the others reuse its model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rayfl.config.cohort import Bernoulli, BySampler, BySize, Cohort, Explicit, Pooled
from rayfl.config.scenario import Scenario
from rayfl.start.chain import Starting, starts_of


def in_order(scenarios: Sequence[Scenario], made: Iterable[Scenario] = ()) -> list[tuple[int, float]]:
    """Orders scenarios such that few wait for a start that another one is running.

    The first scenario of every start comes before all others. Within both groups the longest come first; among equally
    long ones, those whose start began first.

    Args:
        scenarios: The scenarios to be run.
        made: Scenarios that have been run, so their starts exist.

    Returns:
        Positions in `scenarios`, each with its client updates (see `client_updates`), including those of the starts
        that it runs.
    """
    chains: dict[str, list[Starting]] = {}
    links = [_chain(scenario, chains) for scenario in scenarios]
    seen = {link.key for scenario in made for link in _chain(scenario, chains)}
    first: list[tuple[int, float]] = []
    others: list[tuple[int, float]] = []
    for index, scenario in enumerate(scenarios):
        new = {link.key: link.scenario for link in links[index] if link.key not in seen}
        seen |= set(new)
        work = client_updates(scenario) + sum(map(client_updates, new.values()))
        (first if new else others).append((index, work))
    first.sort(key=lambda planned: -planned[1])
    began = {links[index][0].key: position for position, (index, _) in enumerate(first)}
    others.sort(key=lambda planned: (-planned[1], began.get(links[planned[0]][0].key, 0) if links[planned[0]] else 0))
    return [*first, *others]


def client_updates(scenario: Scenario) -> float:
    """Returns the approximate number of client updates of a run: its cost relative to similar runs."""
    clients = scenario.data.clients or 1
    return sum(phase.rounds * _cohort_size(phase.settings.cohort, clients) for phase in scenario.phases)


def _chain(scenario: Scenario, known: dict[str, list[Starting]]) -> list[Starting]:
    if scenario.start is None or scenario.start.scenario is None:
        return []
    key = scenario.start.model_dump_json()
    if key not in known:
        known[key] = list(starts_of(scenario.start))
    return known[key]


def _cohort_size(cohort: Cohort | Pooled, clients: int) -> float:
    match cohort:
        case Bernoulli(bernoulli=share) | float(share):
            return share * clients
        case Explicit(explicit=lists):
            return sum(map(len, lists)) / len(lists)
        case BySize(by_size=number) | int(number):
            return number
        case Pooled():
            return clients
        case BySampler():  # unknown before it draws
            return clients
