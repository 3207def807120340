"""The centralised counterpart of a scenario: same data, model and number of passes, but no clients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np

from rayfl.algorithms.construction import build_algorithm
from rayfl.config.execution import Resources
from rayfl.config.local import Local
from rayfl.config.phase import CentralPhase, Phase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.engine.plan.cohort import expected_updates
from rayfl.errors import ScenarioError
from rayfl.local.steps import batches_of_steps, typical

Centralise = bool | Literal["keep_momentum"]
"""Whether to run the centralised counterpart, and whether it carries its momentum from pass to pass."""

SUFFIX = "_centralised"
"""Suffix of its name."""


def centralised(scenario: Scenario, sizes: np.ndarray, keep_momentum: bool = False) -> Scenario:
    """Replaces phases by central training on the clients' pooled samples: one phase per task and network.

    A round is one pass over the pool. The number of rounds is the expected number of passes that all client updates of
    the scenario make together, rounded, at least one. It assumes that all clients are equally likely to be drawn, and
    excludes samples that an algorithm keeps for its queries. Training follows the `local` table of the last phase; its
    learning rate falls from the first to the last pass as it fell from the first to the last round, or in the rounds of
    the last phase where it counts only those. Callbacks follow the whole run, and the one model is evaluated on all
    clients. What belongs to clients alone (devices, stacking, room for their state) is left out.

    Args:
        scenario: The resolved scenario.
        sizes: [clients] training samples of each client.
        keep_momentum: Whether a pass begins with the velocity of the previous one; by default it begins without.

    Raises:
        ScenarioError: A phase has client-level DP, but the counterpart has no clients; or there is no momentum to keep.
    """
    for phase in scenario.phases:
        if phase.settings.dp:
            raise ScenarioError(
                f"phases.{phase.name}.dp: central training has no clients, so client-level DP does not apply; run the "
                "centralised counterpart of a scenario without it"
            )
    parts = [list(part) for _, part in groupby(scenario.phases, lambda phase: _learned(scenario, phase))]
    names = ["central"] if len(parts) == 1 else [f"central_{part[-1].name}" for part in parts]
    starts = np.cumsum([0, *(sum(phase.rounds for phase in part) for part in parts)]).tolist()
    phases = tuple(
        _central(name, part, start, sizes, keep_momentum)
        for name, part, start in zip(names, parts, starts[:-1], strict=True)
    )
    return scenario.model_copy(
        update={
            "name": f"{scenario.name}{SUFFIX}",
            "title": f"{scenario.title or scenario.name}, centralised",
            "phases": phases,
            "callbacks": tuple(_of_any_phase(chosen) for chosen in scenario.callbacks),
            "evaluation": scenario.evaluation.model_copy(update={"client_model": "global"}),
            "participation": None,
            "numerics": scenario.numerics.model_copy(update={"clients_at_once": 1}),
            "resources": scenario.resources.model_copy(update={"client_state_gb": Resources().client_state_gb}),
        }
    )


def _learned(scenario: Scenario, phase: Phase) -> tuple[Named, Named]:
    return scenario.task_of(phase), scenario.model_of(phase)


def _central(name: str, phases: Sequence[Phase], start: int, sizes: np.ndarray, keep_momentum: bool) -> Phase:
    """One phase of central training that replaces several phases with the same task and network.

    `start` is the number of rounds before them.
    """
    passes = sum(_passes(phase, sizes) for phase in phases)
    first, last = phases[0], phases[-1]
    rounds = max(1, round(passes))
    local = last.local.model_copy(update={"epochs": 1, "steps": None} | _rates(phases, start, rounds))
    if keep_momentum and not (local.is_plain_sgd and local.momentum):
        raise ScenarioError(
            f"--keep-momentum: phase '{last.name}' has no momentum; set its local.momentum, or leave out the option"
        )
    only = build_algorithm(last).trains_only if last.train == "all" else last.train
    return CentralPhase(
        name=name,
        schedule="central",
        rounds=rounds,
        train=only,
        local=local,
        task=last.task,
        model=last.model,
        metrics=last.metrics,
        head=first.head,
        keep_momentum=keep_momentum,
    )


def _rates(phases: Sequence[Phase], start: int, passes: int) -> dict[str, Any]:
    """Options of the learning rate over some passes that replace phases, which begin after `start` rounds."""
    local, of_last = phases[-1].local, max(1, phases[-1].rounds)
    before = max(1, sum(phase.rounds for phase in phases))
    if local.lr_decay_from == "phase":
        start, before = 0, of_last
    over = sum(drop <= start for drop in local.lr_drops)
    later = [drop - start for drop in local.lr_drops if drop > start]
    drops = tuple(dict.fromkeys(max(1, round(drop * passes / before)) for drop in later))
    falls = bool(drops) or local.lr_decay != 1
    schedule = local.round_schedule
    if isinstance(schedule.warmup, int):
        schedule = schedule.model_copy(update={"warmup": round(schedule.warmup * passes / of_last)})
    return {
        "lr": local.lr * local.lr_decay**start * local.lr_drop**over,
        "lr_decay": local.lr_decay ** (before / passes),
        "lr_decay_from": "phase" if falls and (start or local.lr_decay_from == "phase") else "scenario",
        "lr_drops": drops,
        "lr_drop": local.lr_drop if drops else Local().lr_drop,
        "round_schedule": schedule,
    }


def _of_any_phase(chosen: Named) -> Named:
    options = {key: value for key, value in chosen.options.items() if key != "phase"}
    return Named.model_validate({"name": chosen.name, **options})


def _passes(phase: Phase, sizes: np.ndarray) -> float:
    """The average number of times that a phase trains on each sample."""
    local = typical(phase.local)
    if phase.pool:
        sizes = sizes.sum(keepdims=True)
    distinct, counts = np.unique(build_algorithm(phase).training_sizes(sizes), return_counts=True)
    trained = [sum(map(sum, batches_of_steps(local, int(size)))) for size in distinct]
    per_update = float(np.dot(trained, counts)) / len(sizes)
    return phase.rounds * expected_updates(phase, len(sizes)) * per_update / float(sizes.sum())
