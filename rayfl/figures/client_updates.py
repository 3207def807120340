"""The client updates of a run up to each evaluated round, computed from its scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rayfl.figures.recorded_run import RecordedRun


def client_updates(run: RecordedRun) -> np.ndarray | None:
    """Client updates up to each evaluated round.

    They are known only if cohorts have a fixed size and each of their clients trains once: in parallel phases and
    relays without [participation] and over-selection. Under `local.dp.max_epsilon`, clients whose budget is spent are
    left out, so the count is not known either.

    Returns:
        float64 [n]; None if the scenario does not tell.
    """
    phases = run.scenario.get("phases", [])
    clients = run.environment.get("data", {}).get("clients", run.scenario.get("data", {}).get("clients"))
    if not phases or run.scenario.get("participation"):
        return None
    per_round: list[np.ndarray] = []
    for phase in phases:
        sizes = _sizes(phase, clients)
        if sizes is None:
            return None
        per_round.append(sizes)
    total = np.cumsum(np.concatenate(per_round))
    if run.rounds[-1] > len(total):
        return None
    updates: np.ndarray = total[run.rounds - 1].astype(np.float64)
    return updates


def _sizes(phase: Mapping[str, Any], clients: int | None) -> np.ndarray | None:
    """The cohort sizes of a phase's rounds."""
    rounds, cohort = phase["rounds"], phase.get("cohort")
    if phase.get("local", {}).get("dp", {}).get("max_epsilon") is not None:
        return None
    if phase.get("schedule", "parallel") not in ("parallel", "relay") or phase.get("over_selection", 1) != 1:
        return None
    match cohort:
        case int(size) | {"by_size": int(size)}:
            return np.full(rounds, size)
        case float(share) if clients is not None:
            return np.full(rounds, max(1, math.floor(share * clients + 1e-9)))
        case {"explicit": lists}:
            return np.array([len(lists[place % len(lists)]) for place in range(rounds)], np.int64)
        case _:
            return None
