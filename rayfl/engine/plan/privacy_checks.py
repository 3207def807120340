"""Rejects settings of `local.dp` and `phases.N.dp` that do not hide samples or clients, or have no effect.

Also algorithms, tasks and options that cannot be combined with `local.dp`. Needs no data; of `phases.N.dp` it checks
the account and the released values as well, once the clients and the network are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from rayfl.algorithms.support_query import SupportQuery
from rayfl.config.cohort import Bernoulli, BySampler, BySize
from rayfl.config.local import Local
from rayfl.config.privacy import ClientDP, SampleDP
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.client_ledger import relation_of, sampling_of
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.trace import written
from rayfl.errors import ScenarioError
from rayfl.local.training_plan import select
from rayfl.models.flat import FlatModel
from rayfl.privacy.clients.accounting import accountants_of
from rayfl.tasks.task import Task


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
    for key, (is_set, reason) in refused.items():
        if is_set:
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


def check_sample_requests(plans: Sequence[PhasePlan]) -> None:
    """Checks that algorithms of users state their requests, and that parts which compose in parallel do not overlap.

    Parts of `SupportQuery` do not overlap if all phases split samples in the same way. Other parts are assumed to.

    Args:
        plans: The phases with `local.dp`, with their traces.

    Raises:
        ScenarioError: Parts might overlap, or it is not stated what clients request.
    """
    for plan in plans:
        _check_stated(plan)
        known = {"", *plan.algorithm.parts} if isinstance(plan.algorithm, SupportQuery) else {""}
        for request in plan.sample_requests():
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


LARGEST_DELTA = 1.1
"""delta is at most 1 / M^1.1 of M clients (McMahan et al., ICLR 2018)."""

LARGEST_DEFAULT_DELTA = 0.01
"""Above this value (up to 65 clients) delta has no default and must be given explicitly."""


def check_hides_clients(plan: PhasePlan, where: str) -> None:
    """Checks everything about a phase that needs neither data nor network.

    Raises:
        ScenarioError: The algorithm or an option of the phase releases what noise does not hide.
    """
    phase, settings = plan.phase, plan.phase.settings
    dp = settings.dp
    if dp is None:
        return
    if isinstance(settings.cohort, BySampler):
        raise ScenarioError(
            f"{where}.cohort: no account covers clients that the sampler '{settings.cohort.sampler}' chooses; use "
            "{ bernoulli = probability } or a number of clients"
        )
    if isinstance(settings.cohort, BySize):
        raise ScenarioError(
            f"{where}.cohort: by_size draws clients by their numbers of samples, which dp must hide; use "
            "{ bernoulli = probability } or a number of clients"
        )
    if settings.order == "no_repeat":
        raise ScenarioError(
            f"{where}.order: with 'no_repeat' cohorts depend on the round before, which dp does not account for; use "
            "'sampled'"
        )
    if settings.transforms and dp.level == "local":
        raise ScenarioError(
            f"{where}.transforms: '{settings.transforms[0].name}' saves nothing with noise that clients add to every "
            "value; leave transforms out, or use dp.level = 'central', which clips the transformed answers"
        )
    if phase.local.dp and phase.local.dp.max_epsilon is not None:
        raise ScenarioError(
            f"{where}.local.dp.max_epsilon: the clients that it leaves out, or when it stops, depend on clients' "
            f"sizes and past rounds, which phases.{phase.name}.dp hides; leave it out, or give target_epsilon instead"
        )
    if phase.has_server:
        _check_released(plan, dp, where)
    if dp.level == "local" and dp.accountant and not dp.secure:
        raise ScenarioError(
            f"{where}.dp.accountant: has no effect with level = 'local', whose epsilon is known exactly; leave it out"
        )


def _check_released(plan: PhasePlan, dp: ClientDP, where: str) -> None:
    name = plan.phase.algorithm.name
    try:
        released = plan.algorithm.releases()
    except ScenarioError as error:
        raise ScenarioError(f"{where}.dp: '{name}' does not hide clients: {error}") from None
    if plan.evaluated.rule == "all" or (plan.evaluated.reads_trained and "delta" not in released.values):
        raise ScenarioError(
            f"{where}.eval_model: '{plan.evaluated.rule}' is a mean of models that dp hides; use eval_model = 'global'"
        )
    if plan.diagnostics.reads_trained and plan.phase.hides_cohort and isinstance(plan.phase.settings.cohort, Bernoulli):
        raise ScenarioError(
            f"{where}.report: 'divergence' needs participants, and with dp a Bernoulli cohort may have none; leave it "
            "out"
        )


def _check_stated(plan: PhasePlan) -> None:
    """Checks that a user's own algorithm states what clients request; traced rounds prove nothing of others."""
    own = list(takewhile(lambda kind: not kind.__module__.startswith("rayfl."), type(plan.objective).__mro__))
    if own and not any("sample_requests" in vars(kind) for kind in own):
        raise ScenarioError(
            f"phases.{plan.phase.name}.local.dp: '{plan.phase.algorithm.name}' must state every request that reads "
            "samples in any round; if those of the rounds that rayfl tried are all, write "
            f"`def sample_requests(self): return {written(plan.sample_requests())}`"
        )


def check_releases_once(plan: PhasePlan, where: str) -> None:
    """Checks that a phase with `dp` asks a cohort once in a round.

    Raises:
        ScenarioError: It does not.
    """
    if plan.phase.settings.dp and plan.phase.has_server and plan.asked.count("cohort") != 1:
        name = plan.phase.algorithm.name
        raise ScenarioError(
            f"{where}.dp: '{name}' asks a cohort more than once per round, but dp accounts for one release"
        )


def check_account(plans: Sequence[PhasePlan], num_clients: int) -> tuple[float, str]:
    """Checks that one account covers all phases that hide clients.

    Returns:
        Their delta, and the accountant.

    Raises:
        ScenarioError: Phases differ in delta or in their neighbouring relation, delta or its default is too large, or
            an accountant does not support a phase's sampling.
    """
    private = [(plan.phase, plan.phase.settings.dp) for plan in plans if plan.phase.settings.dp]
    largest = largest_delta(num_clients)
    for phase, dp in private:
        if dp.delta is None and largest > LARGEST_DEFAULT_DELTA:
            raise ScenarioError(
                f"phases.{phase.name}.dp.delta: its default, 1 / M^1.1 of M = {num_clients} clients, is {largest:.3g}, "
                "the probability with which a client may be fully exposed; give delta (0.01, or at most this)"
            )
    deltas = {phase.name: dp.delta or largest for phase, dp in private}
    for name, delta in deltas.items():
        if delta > largest * (1 + 1e-9):
            raise ScenarioError(
                f"phases.{name}.dp.delta: {delta:g} is above {largest:.3g}, 1 / M^1.1 of M = {num_clients} clients, "
                "with which some of them could be fully exposed; leave it out, or use a smaller one"
            )
    first = private[0][0]
    for phase, dp in private[1:]:
        if deltas[phase.name] != deltas[first.name]:
            raise ScenarioError(
                f"phases.{phase.name}.dp.delta: {deltas[phase.name]:.3g}, but {deltas[first.name]:.3g} in phase "
                f"'{first.name}'; one guarantee has one delta"
            )
        if relation_of(phase) != relation_of(first):
            raise ScenarioError(
                f"phases.{phase.name}.dp: its neighbours differ in {relation_of(phase)}, those of phase '{first.name}' "
                f"in {relation_of(first)}, and no account composes both; use cohorts of fixed size with 'central'"
            )
        if dp.secure != private[0][1].secure:
            raise ScenarioError(
                f"phases.{phase.name}.dp.secure: is {str(dp.secure).lower()}, unlike in phase '{first.name}'; one "
                "guarantee has one source of noise: use the same value everywhere"
            )
    samplings = {sampling_of(phase, num_clients)[1] for phase, _ in private}
    known = accountants_of(samplings, private[0][1].secure)
    for phase, dp in private:
        if dp.accountant and dp.accountant not in known:
            raise ScenarioError(
                f"phases.{phase.name}.dp.accountant: '{dp.accountant}' does not cover this run's cohorts, "
                f"{' and '.join(sorted(samplings))}; "
                + ("leave it out: epsilon is exact" if known == ("exact",) else f"use '{known[0]}'")
            )
    chosen = {dp.accountant for _, dp in private if dp.accountant}
    if len(chosen) > 1:
        raise ScenarioError(
            f"phases.{private[-1][0].name}.dp.accountant: must be the same in all phases of one account"
        )
    return deltas[first.name], chosen.pop() if chosen else known[0]


def largest_delta(num_clients: int) -> float:
    """1 / M^1.1 of M clients."""
    return float(num_clients**-LARGEST_DELTA)


def changing_values(plan: PhasePlan, model: FlatModel, where: str) -> tuple[tuple[int, int], ...]:
    """Returns the positions in a model vector of the values that a phase trains: (start, stop), ascending.

    Raises:
        ScenarioError: Buffers are among them, or modules that follow others.
    """
    if copies := getattr(model.module, "copies", None):
        raise ScenarioError(
            f"{where}.dp: '{next(iter(copies))}' of model {type(model.module).__name__} follows trained modules "
            "without being trained, so that no clipped change moves it; use a model without it (as 'siamese')"
        )
    selection = select(plan.train, model.module)
    changing = [slot for slot in model.layout if selection is None or selection.tensors.intersection(slot.names)]
    buffers = dict(model.module.named_buffers())
    for slot in changing:
        if slot.name in buffers:
            raise ScenarioError(
                f"{where}.dp: buffer '{slot.name}' of model {type(model.module).__name__} would be averaged with the "
                "trained parameters, and running statistics cannot be clipped; use group norm (model.norm = 'group' "
                "of the ResNets)"
            )
    trained = [(slot.offset, slot.offset + slot.size) for slot in changing if slot.is_parameter]
    return tuple(sorted(trained))
