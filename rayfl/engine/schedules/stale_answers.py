"""Rejects algorithms and options that do not support answers to older models than the server's current one."""

from __future__ import annotations

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.planning.phase_plan import PhasePlan


def check_takes_stale_answers(plan: PhasePlan, scenario: Scenario) -> None:
    """Checks that a phase can be asynchronous.

    Raises:
        ScenarioError: It cannot; the message begins with a key of the phase.
    """
    if scenario.participation is None or not scenario.participation.has_clock:
        raise ScenarioError(
            f"schedule: '{plan.phase.schedule}' needs a virtual clock to order the answers; give clients speeds in "
            "[participation] (such as steps_per_s), or use schedule = 'parallel'"
        )
    _check_algorithm(plan)
    if plan.phase.local.dp:
        raise ScenarioError(
            "local.dp: privacy is accounted in the round in which an update begins, but here updates end in later "
            "rounds; leave it out, or use a parallel phase"
        )
    if plan.evaluated.reads_trained:
        raise ScenarioError(
            f"eval_model: '{plan.evaluated.rule}' averages the clients' models, but these began from different models; "
            "use 'global', 'average' or 'ema'"
        )


def _check_algorithm(plan: PhasePlan) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.algorithm
    if plan.asked != ("cohort",):
        raise ScenarioError(
            f"algorithm: '{name}' has {len(plan.asked)} exchanges per round, but asynchronous clients can have only "
            "one; use an algorithm with one, such as 'fedavg', or a parallel phase"
        )
    if plan.client_state:
        kept = ", ".join(sorted(plan.client_state))
        raise ScenarioError(
            f"algorithm: clients of '{name}' keep state ({kept}), which updates that overlap would not find as the "
            "previous round left it; use an algorithm without client state, or a parallel phase"
        )
    if algorithm.no_stale_answers:
        raise ScenarioError(f"algorithm: '{name}' cannot be asynchronous: {algorithm.no_stale_answers}")
    if isinstance(algorithm, FedAvg) and algorithm.aggregation.each:
        raise ScenarioError(
            f"algorithm.aggregation: '{algorithm.aggregation.name}' compares updates, but these began from different "
            "models; use 'mean'"
        )
