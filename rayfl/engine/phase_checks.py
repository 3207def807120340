"""Checks that the parts of a scenario fit together, without data and network."""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.diagnostics import ALWAYS_KNOWN, DIVERGENCE
from rayfl.algorithms.power_of_choice import PowerOfChoice
from rayfl.config.asynchronous import FullyAsynchronousPhase
from rayfl.config.local import RATE_KEYS, Local
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import BUCKETS
from rayfl.engine.participation_checks import check_participation
from rayfl.engine.schedules.building import schedule_of
from rayfl.engine.view_checks import check_views
from rayfl.errors import ScenarioError
from rayfl.planning.phase_plan import PhasePlan, plan_phases, scores_personal_models
from rayfl.privacy.clients.checks import check_hides_clients
from rayfl.privacy.samples.checks import check_sample_dp
from rayfl.registry import nearest

ONLY_ON_CUDA = {"numerics": ("deterministic", "tf32"), "resources": ("device_cache_gb",)}
"""Keys of the scenario that have no effect on the CPU."""


def check_scenario(scenario: Scenario) -> None:
    """Checks a scenario as far as possible without data and network.

    Raises:
        ScenarioError: An algorithm or option does not fit the phase's schedule, or has no effect; names the key.
    """
    if not scenario.resources.uses_cuda:
        _check_cpu(scenario)
    check_views(scenario)
    if scenario.start and scenario.phases[0].head is not None:
        raise ScenarioError(
            f"phases.{scenario.phases[0].name}.head: is about the weights of the previous phase, and this is the first "
            "phase; use start.head for those of [start]"
        )
    plans = plan_phases(scenario)
    if scenario.evaluation.client_model == "personal" and not any(
        scores_personal_models(scenario, plan) for plan in plans
    ):
        names = ", ".join(sorted({f"'{plan.phase.algorithm.name}'" for plan in plans}))
        raise ScenarioError(
            "evaluation.client_model: 'personal' needs an algorithm with personal models (ditto, fedbn, fedper, or "
            f"buffers = 'keep'), and {names} has none"
        )
    _check_clients_at_once(scenario, plans)
    check_participation(scenario)
    _check_client_states(scenario, plans)
    for plan in plans:
        where = f"phases.{plan.phase.name}"
        schedule = schedule_of(plan.phase)
        if plan.phase.has_server:
            _check_optimizer(plan, where)
        else:
            _check_local_objective(plan, schedule.noun, where)
        try:
            schedule.check(plan, scenario)
        except ScenarioError as error:
            raise ScenarioError(f"{where}.{error}") from None
        _check_local_keys(plan, where)
        _check_eval_model(plan, where)
        _check_report(plan, where)
        if isinstance(plan.sampler, PowerOfChoice) and not plan.algorithm.trains:
            raise ScenarioError(
                f"{where}.cohort: 'power_of_choice' reads training losses, and clients of "
                f"'{plan.phase.algorithm.name}' do not train; use another cohort"
            )
        check_hides_clients(plan, where)
        _check_hosts(scenario, plan, where)
        _ = plan.client_state, plan.server_state
    check_sample_dp(scenario, plans)


def _check_client_states(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    resources = scenario.resources
    default = type(resources).model_fields["client_state_gb"].default
    if resources.client_state_gb != default and not any(plan.client_state for plan in plans):
        raise ScenarioError(
            "resources.client_state_gb: has no effect, since no phase's clients keep state; leave it out"
        )


def _check_cpu(scenario: Scenario) -> None:
    for section, keys in ONLY_ON_CUDA.items():
        chosen = getattr(scenario, section)
        for key in keys:
            if getattr(chosen, key) != type(chosen).model_fields[key].default:
                raise ScenarioError(f"{section}.{key}: has no effect on the CPU, where this would run; leave it out")


def _check_clients_at_once(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    """Rejects `clients_at_once` if no request can be stacked, whatever the network and algorithm."""
    at_once = scenario.numerics.clients_at_once
    if at_once > 1 and all(_trains_one_by_one(plan) for plan in plans):
        raise ScenarioError(
            f"numerics.clients_at_once: {at_once} has no effect, since relays, central training and local.dp train "
            "one client after the other, and schedule = 'asynchronous' receives one answer after the other; leave it "
            "out"
        )
    for plan in plans:
        if at_once > 1 and (dp := plan.phase.settings.dp) and dp.secure:
            raise ScenarioError(
                "numerics.clients_at_once: the last bits of an update depend on the clients that train with it, which "
                f"phases.{plan.phase.name}.dp.secure rules out; leave it out"
            )


def _trains_one_by_one(plan: PhasePlan) -> bool:
    phase = plan.phase
    return not phase.has_server or phase.local.dp is not None or isinstance(phase, FullyAsynchronousPhase)


def _check_hosts(scenario: Scenario, plan: PhasePlan, where: str) -> None:
    hosts = scenario.resources.hosts
    if isinstance(hosts, int) and hosts > BUCKETS and plan.keeps_client_state:
        raise ScenarioError(
            f"resources.hosts: {hosts} is too many for {where}: clients that keep state can be divided among at most "
            f"{BUCKETS} workers; set resources.hosts={BUCKETS}"
        )


def _check_local_objective(plan: PhasePlan, noun: str, where: str) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.objective
    if algorithm.no_relay:
        raise ScenarioError(
            f"{where}: '{name}' cannot run in a {noun}: {algorithm.no_relay}; use it in a parallel phase"
        )
    if not algorithm.trains:
        raise ScenarioError(f"{where}: '{name}' cannot run in a {noun}: its clients do not train")
    if algorithm.reads_first_model():
        raise ScenarioError(
            f"{where}: '{name}' cannot read the phase's first model in a {noun}, since only a server sends it"
        )
    for field in _server_side(type(algorithm)):
        if getattr(algorithm, field) != type(algorithm).model_fields[field].get_default():
            raise ScenarioError(
                f"{where}.algorithm.{field}: has no effect in a {noun}, which has only a local objective; leave it out"
            )


def _server_side(kind: type[Algorithm]) -> list[str]:
    """Returns the fields that a relay ignores; for fields that a user's class adds, rayfl cannot tell."""
    shipped = next(base for base in kind.__mro__ if base.__module__.startswith("rayfl."))
    assert issubclass(shipped, Algorithm)
    return [field for field in shipped.model_fields if field not in kind.local_options]


def _check_optimizer(plan: PhasePlan, where: str) -> None:
    name, chosen, reason = plan.phase.algorithm.name, plan.phase.local.optimizer.name, plan.algorithm.assumes_sgd()
    if reason and not plan.phase.local.is_plain_sgd:
        options = " with options" if chosen == "sgd" else ""
        raise ScenarioError(f"{where}.local.optimizer: '{name}' does not work with '{chosen}'{options}: {reason}")
    if reason and plan.phase.local.module_lr:
        raise ScenarioError(f"{where}.local.module_lr: '{name}' does not work with several learning rates: {reason}")


def _check_report(plan: PhasePlan, where: str) -> None:
    known = (*ALWAYS_KNOWN, *plan.algorithm.reports)
    for name in plan.phase.settings.report:
        if name not in known:
            raise ScenarioError(
                f"{where}.report: '{plan.phase.algorithm.name}' does not report '{name}'; {nearest(name, known)}"
            )
        if name == DIVERGENCE and not plan.algorithm.trains:
            algorithm = plan.phase.algorithm.name
            raise ScenarioError(
                f"{where}.report: 'divergence' needs trained models, but clients of '{algorithm}' do not train"
            )


def _check_local_keys(plan: PhasePlan, where: str) -> None:
    """Checks that an algorithm which reads only some keys of `local` gets no others."""
    name, default, keys = plan.phase.algorithm.name, Local(), plan.algorithm.local_keys()
    if keys is None:
        return
    for field in type(default).model_fields:
        if field not in keys | {"dp"} and getattr(plan.phase.local, field) != getattr(default, field):
            never = not plan.algorithm.trains and field not in RATE_KEYS
            untrained = f"clients of '{name}' do not train"
            reason = untrained if never else f"with these options, '{name}' reads only {', '.join(sorted(keys))}"
            raise ScenarioError(f"{where}.local.{field}: has no effect: {reason}; leave it out")


def _check_eval_model(plan: PhasePlan, where: str) -> None:
    name, rule, allowed = plan.phase.algorithm.name, plan.evaluated.rule, plan.algorithm.only_eval_models
    if allowed is not None and rule not in allowed:
        raise ScenarioError(
            f"{where}.eval_model: '{rule}' misses the steps that the server of '{name}' takes after the clients have "
            f"trained; use {' or '.join(map(repr, allowed))}"
        )
    if plan.phase.settings.server_training and rule not in ("global", "ema"):
        default = f", the default of '{name}'," if rule == plan.algorithm.default_eval_model else ""
        raise ScenarioError(
            f"{where}.server_training: trains the global model, but eval_model = '{rule}'{default} evaluates a "
            "different one; use eval_model = 'global'"
        )
    if plan.evaluated.reads_trained and not plan.algorithm.trains:
        raise ScenarioError(
            f"{where}.eval_model: '{plan.evaluated.rule}' needs trained models, but clients of "
            f"'{plan.phase.algorithm.name}' do not train"
        )
