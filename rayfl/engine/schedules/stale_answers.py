"""What a phase cannot carry whose server takes in answers to older models than its own; refused by name."""

from __future__ import annotations

from rayfl.algorithms.fedavg import FedAvg
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.planning.phase_plan import PhasePlan


def check_takes_stale_answers(plan: PhasePlan, scenario: Scenario) -> None:
    """Checks that a phase can be asynchronous.

    Raises:
        ScenarioError: It cannot; begins with a key of the phase.
    """
    if scenario.participation is None or not scenario.participation.has_clock:
        raise ScenarioError(
            f"schedule: '{plan.phase.schedule}' needs a virtual clock, which says whose answer comes first; give "
            "clients speeds in [participation] (steps_per_s, say), or use schedule = 'parallel'"
        )
    _check_algorithm(plan)
    if plan.phase.local.dp:
        raise ScenarioError(
            "local.dp: accounts count an update in the round in which it begins, and here it ends in another; leave it "
            "out, or use a parallel phase"
        )
    if plan.evaluated.reads_trained:
        raise ScenarioError(
            f"eval_model: '{plan.evaluated.rule}' is a mean of what clients returned, and these began from different "
            "models; use 'global', 'average' or 'ema'"
        )


def _check_algorithm(plan: PhasePlan) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.algorithm
    if plan.asked != ("cohort",):
        raise ScenarioError(
            f"algorithm: '{name}' has {len(plan.asked)} exchanges a round, and clients that answer at their own times "
            "have one; use an algorithm with one, such as 'fedavg', or a parallel phase"
        )
    if plan.client_state:
        kept = ", ".join(sorted(plan.client_state))
        raise ScenarioError(
            f"algorithm: clients of '{name}' keep a state ({kept}), and updates that overlap would not find it as the "
            "round before left it; use an algorithm without, or a parallel phase"
        )
    if algorithm.no_stale_answers:
        raise ScenarioError(f"algorithm: '{name}' cannot be asynchronous: {algorithm.no_stale_answers}")
    if isinstance(algorithm, FedAvg) and algorithm.aggregation.each:
        raise ScenarioError(
            f"algorithm.aggregation: '{algorithm.aggregation.name}' compares updates, and these began from different "
            "models; use 'mean'"
        )
