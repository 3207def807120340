"""Rejects algorithms, tasks and options that cannot be combined with `local.dp`, before the run starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rayfl.algorithms.support_query import SupportQuery
from rayfl.config.local import Local
from rayfl.config.privacy import SampleDP
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    from rayfl.planning.phase_plan import PhasePlan


def check_sample_dp(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    """Checks everything that needs neither data nor network.

    Args:
        scenario: The scenario.
        plans: Its phases.

    Raises:
        ScenarioError: An algorithm, task or option leaks samples, or has no effect; the message names its key.
    """
    personalize = scenario.evaluation.personalize
    if personalize and personalize.dp:
        raise ScenarioError(
            "evaluation.personalize.dp: has no effect on privacy, because only the experimenter sees evaluations; "
            "leave it out"
        )
    for plan in plans:
        where = f"phases.{plan.phase.name}"
        if (training := plan.phase.settings.server_training) and training.dp:
            raise ScenarioError(
                f"{where}.server_training.dp: only the samples of clients are private (local.dp), not those of the "
                "server; leave it out"
            )
        if plan.phase.local.dp:
            _check_algorithm(plan, where)
            _check_task(plan.task, where)
            _check_options(plan.phase.local, scenario, plan, f"{where}.local")
    _check_parts([plan for plan in plans if plan.phase.local.dp])


def _check_algorithm(plan: PhasePlan, where: str) -> None:
    name = plan.phase.algorithm.name
    if reason := plan.algorithm.no_sample_dp():
        raise ScenarioError(f"{where}.local.dp: is not available with '{name}': {reason}")
    if plan.sampler is not None and plan.sampler.reads_scalars:
        raise ScenarioError(
            f"{where}.cohort: '{plan.sampler.name}' reads what clients report, such as training losses, without noise, "
            "so cohorts reveal something about their samples; use another cohort with local.dp"
        )


def _check_task(task: Task, where: str) -> None:
    if not task.per_sample or task.views > 1 or type(task).objective is not Task.objective:
        raise ScenarioError(
            f"{where}.local.dp: task '{task.name}' has no per-sample losses whose gradients could be clipped; "
            "use a task that has them, such as 'classification'"
        )
    if task.client_state() or type(task).after_step is not Task.after_step:
        raise ScenarioError(
            f"{where}.local.dp: the state that task '{task.name}' keeps or changes between steps is neither clipped "
            "nor noised; use a task without client_state and after_step"
        )


def _check_options(local: Local, scenario: Scenario, plan: PhasePlan, where: str) -> None:
    dp = local.dp
    assert dp is not None
    refused = {
        "sample_weights": (local.sample_weights is not None, "weights depend on all labels of a client"),
        "sampling": (local.sampling == "balanced", "no accountant covers draws that depend on classes"),
        "accumulate": (local.accumulate > 1, "dp.physical_batch_size bounds memory; use a larger batch_size"),
        "drop_last": (local.drop_last, "batches are drawn, ceil(samples / batch_size) per epoch"),
        "precision": (local.precision != "float32", "clipping and noise are computed in float32"),
        "shuffle": (not local.shuffle and dp.sampling == "poisson", "Poisson sampling has no order"),
    }
    for key, (given, reason) in refused.items():
        if given:
            raise ScenarioError(f"{where}.{key}: cannot be combined with dp: {reason}; leave it out")
    if dp.secure and dp.noise_multiplier == 0:
        raise ScenarioError(f"{where}.dp.secure: has no effect without noise, which hides nothing; leave it out")
    if dp.augmentations > dp.physical_batch_size:
        raise ScenarioError(
            f"{where}.dp.augmentations: {dp.augmentations} copies of a sample do not fit a physical batch of "
            f"{dp.physical_batch_size}; use a larger physical_batch_size"
        )
    if dp.augmentations > 1 and not scenario.data.augment:
        raise ScenarioError(
            f"{where}.dp.augmentations: has no effect without data.augment, as all copies are the same; leave it out"
        )
    if not plan.algorithm.trains:
        _check_untrained(dp, plan.phase.algorithm.name, where)


def _check_untrained(dp: SampleDP, name: str, where: str) -> None:
    for key in ("sampling", "augmentations"):
        if getattr(dp, key) != SampleDP.model_fields[key].default:
            raise ScenarioError(
                f"{where}.dp.{key}: has no effect: clients of '{name}' do not train but answer with gradients of all "
                "their samples; leave it out"
            )


def _check_parts(plans: Sequence[PhasePlan]) -> None:
    """Checks that parts of samples that compose in parallel do not overlap.

    The parts of `SupportQuery` do not, if all phases split samples in the same way; of other parts nothing is known.
    """
    for plan in plans:
        known = {"", *plan.algorithm.parts} if isinstance(plan.algorithm, SupportQuery) else {""}
        for request in plan.algorithm.sample_requests():
            if request.part not in known:
                raise ScenarioError(
                    f"phases.{plan.phase.name}.algorithm: '{plan.phase.algorithm.name}' reads the part "
                    f"'{request.part}' of clients' samples, which might overlap another part, so local.dp would charge "
                    "too little; leave `part` empty, or let SupportQuery split the samples"
                )
    shares = {
        plan.phase.name: plan.algorithm.query_share
        for plan in plans
        if isinstance(plan.algorithm, SupportQuery) and plan.algorithm.split == "client"
    }
    if len(set(shares.values())) > 1:
        listed = ", ".join(f"{name}: {share:g}" for name, share in shares.items())
        raise ScenarioError(
            f"phases.{list(shares)[-1]}.algorithm.query_share: with local.dp, phases that split clients' samples once "
            f"must split them in the same way ({listed}); use one query_share, or split = 'round'"
        )
