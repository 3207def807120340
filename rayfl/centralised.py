"""The centralised counterpart of a scenario: same data and model, as many passes, no clients."""

from __future__ import annotations

import numpy as np

from rayfl.config.phase import CentralPhase, Phase
from rayfl.config.scenario import Scenario
from rayfl.engine.cohort import expected_cohort_size
from rayfl.local.draws import typical
from rayfl.local.steps import batches_of_steps


def centralised(scenario: Scenario, sizes: np.ndarray) -> Scenario:
    """Replaces all phases by central training on the clients' pooled samples.

    A round is one pass over the pool. There are as many as all client updates of the scenario make together on average,
    rounded, at least one; clients are taken to be drawn alike. The last phase's local training says how.

    Args:
        scenario: The resolved scenario.
        sizes: [clients] training samples of each client.
    """
    passes = sum(_passes(phase, sizes) for phase in scenario.phases)
    last = scenario.phases[-1]
    local = last.local.model_copy(update={"epochs": 1, "steps": None})
    phase = CentralPhase(
        name="central", schedule="central", rounds=max(1, round(passes)), train=last.train, local=local
    )
    return scenario.model_copy(
        update={
            "name": f"{scenario.name}_centralised",
            "title": f"{scenario.title or scenario.name}, centralised",
            "phases": (phase,),
        }
    )


def _passes(phase: Phase, sizes: np.ndarray) -> float:
    """How often a phase trains on each sample, on average."""
    local = typical(phase.local)
    distinct, counts = np.unique(sizes, return_counts=True)
    trained = [sum(map(sum, batches_of_steps(local, int(size)))) for size in distinct]
    per_update = float(np.dot(trained, counts)) / len(sizes)
    return phase.rounds * expected_cohort_size(phase, len(sizes)) * per_update / float(sizes.sum())
