"""Checks that the parts of a scenario fit together, without data and network.

Among them [participation] and the phases' keys that depend on it, and `data.views` and `data.augment` against tasks,
which may compare several views of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.round_results import ALWAYS_KNOWN, DIVERGENCE
from rayfl.algorithms.sampler import HighestLossFirst, Ordered, PowerOfChoice
from rayfl.config.base_phase import BasePhase, PhaseSettings
from rayfl.config.cohort import Bernoulli, BySampler, Explicit
from rayfl.config.data import Data
from rayfl.config.local import RATE_KEYS, Local
from rayfl.config.participation import Devices, Sessions
from rayfl.config.phase import FullyAsynchronousPhase
from rayfl.config.registry import nearest
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import most_homes
from rayfl.engine.plan.participation import Everybody
from rayfl.engine.plan.phase_plan import PhasePlan, plan_phases, scores_personal_models
from rayfl.engine.plan.privacy_checks import (
    check_hides_clients,
    check_releases_once,
    check_sample_dp,
    check_sample_requests,
)
from rayfl.engine.schedules.schedule import schedule_of
from rayfl.errors import ScenarioError
from rayfl.tasks.construction import task_key
from rayfl.tasks.task import Task

BY_THE_CLOCK = ("deadline_s", "over_selection", "quorum")
"""Keys of a phase that decide which answers of a round count."""


def check_participation(scenario: Scenario) -> None:
    """Checks a scenario's simulated devices and how its phases use them.

    With `phases.N.dp`, clients may drop out or be unavailable with a probability that depends neither on their data nor
    on the other participants: a client then contributes to fewer rounds than accounted for, and the other clients'
    contributions stay the same. The sum is divided by the number of clients that were to take part
    (`rayfl.engine.plan.client_privacy`), since the number of answers is not hidden. Decisions by virtual time are
    rejected, because they depend on clients' numbers of samples, which dp hides; with `over_selection`, a client that
    is replaced by another also decides whether others count. `local.dp` hides samples but not their number, so it
    allows everything; a client that was sent a model is charged whether or not its answer counts.

    Raises:
        ScenarioError: A key has no effect or is not allowed; names the key.
    """
    devices = scenario.participation
    if devices and all(phase.pool for phase in scenario.phases):
        raise ScenarioError("participation: has no effect, since no phase trains clients; leave it out")
    for phase in scenario.phases:
        where = f"phases.{phase.name}"
        chosen = [key for key in BY_THE_CLOCK if getattr(phase.settings, key) != getattr(PhaseSettings(), key)]
        if devices is None:
            for key in chosen:
                raise ScenarioError(
                    f"{where}.{key}: has no effect without simulated devices, since all clients then answer at once; "
                    "describe devices in [participation], or leave it out"
                )
            continue
        schedule = schedule_of(phase)
        if not isinstance(schedule.participation, Everybody):
            raise ScenarioError(
                f"{where}.schedule: '{phase.schedule}' defines its own participation, which [participation] would "
                "replace; leave [participation] out"
            )
        if not schedule.keeps_time:
            raise ScenarioError(
                f"{where}.schedule: '{phase.schedule}' does not support the virtual clock of [participation] (its "
                "class sets keeps_time = False); leave [participation] out"
            )
        _check_counting(phase, devices, where)
        if phase.settings.dp is not None:
            _check_hides_clients(phase, devices, chosen, where)


def _check_counting(phase: BasePhase, devices: Devices, where: str) -> None:
    settings = phase.settings
    if settings.deadline_s is not None and not devices.has_clock:
        raise ScenarioError(
            f"{where}.deadline_s: has no effect, since nothing takes virtual time; set participation.steps_per_s, "
            "samples_per_s, down_bytes_per_s or up_bytes_per_s"
        )
    if settings.over_selection > 1 and isinstance(settings.cohort, Bernoulli | Explicit | BySampler):
        kind = {Bernoulli: "bernoulli", Explicit: "explicit", BySampler: "sampler"}[type(settings.cohort)]
        raise ScenarioError(
            f"{where}.over_selection: draws more clients than cohort asks for, but {{ {kind} = ... }} does not ask "
            "for a number of clients; use a number or a share of clients, or by_size"
        )


def _check_hides_clients(phase: BasePhase, devices: Devices, chosen: list[str], where: str) -> None:
    for key in chosen:
        raise ScenarioError(
            f"{where}.{key}: is not allowed with dp, which hides clients' numbers of samples and who takes part: both "
            "would decide which answers count; leave it out (dropout and availability as probabilities are possible)"
        )
    if isinstance(devices.availability, Sessions):
        raise ScenarioError(
            "participation.availability: with sessions, the participants depend on the length of earlier rounds and so "
            f"on who took part in them, which {where}.dp hides; use a probability"
        )
    cohort = phase.settings.cohort
    if phase.hides_cohort and isinstance(cohort, Explicit) and len({len(clients) for clients in cohort.explicit}) > 1:
        raise ScenarioError(
            f"{where}.cohort: with [participation] and dp, sums are divided by the number of clients that were to take "
            "part, but these lists differ in length; make them equally long"
        )


def check_views(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    """Checks that the data provides the augmented views that tasks compare, from `data.views` or `data.augment`.

    Args:
        scenario: The scenario.
        plans: Its phases.

    Raises:
        ScenarioError: The number of views differs from a task's, no task uses the views or augmentations, or a task's
            views have no augmentations.
    """
    data, num_views = scenario.data, len(scenario.data.views)
    tasks = [plan.task for plan in plans]
    for phase, task in zip(scenario.phases, tasks, strict=True):
        if num_views and task.views > 1:
            _check_number(task, num_views)
        _check_augmented(task, data, task_key(phase))
    if num_views and all(task.views == 1 for task in tasks):
        raise ScenarioError(
            f"data.views: there are {num_views}, but task '{tasks[0].name}' does not use views; use data.augment"
        )
    if num_views and data.augment and all(task.views > 1 for task in tasks):
        raise ScenarioError(
            "data.views: gives each view its own augmentations, but data.augment gives all the same; remove one of them"
        )


def _check_number(task: Task, number: int) -> None:
    if number != task.views:
        raise ScenarioError(
            f"data.views: there are {number}, but task '{task.name}' compares {task.views}; define {task.views}"
        )
    if task.evaluation_views > number:
        raise ScenarioError(
            f"data.views: there are {number}, but the evaluation of task '{task.name}' reads {task.evaluation_views}; "
            "use data.augment for all of them"
        )


def _check_augmented(task: Task, data: Data, where: str) -> None:
    of_views = data.views if task.views > 1 else ()
    if any(view.augment for view in of_views) if of_views else data.augment:
        return
    if task.views > 1:
        raise ScenarioError(
            f"{where}: '{task.name}' compares {task.views} augmented views of every batch, which are identical without "
            "data.augment; set augmentations"
        )
    if task.evaluation_views:
        raise ScenarioError(
            f"{where}: '{task.name}' is evaluated on augmented views of test samples, which are the unchanged samples "
            "without data.augment; set augmentations"
        )


ONLY_ON_CUDA = {"numerics": ("deterministic", "tf32"), "resources": ("device_cache_gb",)}
"""Keys of the scenario that have no effect on the CPU."""


def check_scenario(scenario: Scenario) -> list[PhasePlan]:
    """Checks a scenario as far as possible without data and network.

    Returns:
        Its phases, with their components built.

    Raises:
        ScenarioError: A component cannot be built, an algorithm or option does not fit the phase's schedule, or has no
            effect; names the key.
    """
    plans = plan_phases(scenario)
    if not scenario.resources.uses_cuda:
        _check_cpu(scenario)
    check_views(scenario, plans)
    if scenario.start and scenario.phases[0].head is not None:
        raise ScenarioError(
            f"phases.{scenario.phases[0].name}.head: is about the weights of the previous phase, and this is the first "
            "phase; use start.head for those of [start]"
        )
    for plan in plans:
        plan.build()
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
    for plan in plans:
        where = f"phases.{plan.phase.name}"
        if plan.phase.has_server:
            _check_optimizer(plan, where)
        else:
            _check_local_objective(plan, schedule_of(plan.phase).noun, where)
        _check_local_keys(plan, where)
        _check_eval_model(plan, where)
        _check_report(plan, where)
        if isinstance(plan.sampler, PowerOfChoice | HighestLossFirst) and not plan.algorithm.trains:
            raise ScenarioError(
                f"{where}.cohort: '{plan.sampler.name}' reads training losses, and clients of "
                f"'{plan.phase.algorithm.name}' do not train; use another cohort"
            )
        if isinstance(plan.sampler, Ordered) and plan.phase.schedule in ("parallel", "local"):
            raise ScenarioError(
                f"{where}.cohort: '{plan.sampler.name}' orders clients, who all begin at once in a "
                f"{schedule_of(plan.phase).noun}; use a number of clients"
            )
        check_hides_clients(plan, where)
    check_sample_dp(scenario, plans)
    return plans


def check_rounds(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    """Checks what depends on what the rounds of the phases exchange and request.

    Args:
        scenario: The scenario.
        plans: Its phases, with their traces.

    Raises:
        ScenarioError: An algorithm's declarations and its rounds differ, or an option does not fit them, or has no
            effect; names the key.
    """
    _check_client_states(scenario, plans)
    for plan in plans:
        where, schedule, name = f"phases.{plan.phase.name}", schedule_of(plan.phase), plan.phase.algorithm.name
        _ = plan.asked
        if not plan.phase.has_server and plan.reads_first_model:
            raise ScenarioError(
                f"{where}: '{name}' cannot read the phase's first model in a {schedule.noun}, since only a server "
                "sends it"
            )
        try:
            schedule.check(plan, scenario)
        except ScenarioError as error:
            raise ScenarioError(f"{where}.{error}") from None
        check_releases_once(plan, where)
        _check_divergence(plan, where)
        _check_hosts(scenario, plan, where)
        _ = plan.client_state, plan.server_state
    check_sample_requests([plan for plan in plans if plan.phase.local.dp])


def _check_divergence(plan: PhasePlan, where: str) -> None:
    """Checks that clients train in every round whose trained models are compared."""
    if not plan.diagnostics.reads_trained or not plan.runs_rounds or plan.traced.unknown:
        return
    for when, round in (("the phase's first round", plan.traced.first), ("a round", plan.traced.later)):
        if not any(exchange.trained for exchange in round):
            raise ScenarioError(
                f"{where}.report: 'divergence' compares trained models, but clients of '{plan.phase.algorithm.name}' "
                f"answer with none in {when}; leave it out, or return Answer(..., trained=...)"
            )


def _check_client_states(scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
    default = type(scenario.resources).model_fields["client_state_gb"].default
    if scenario.resources.client_state_gb != default and not any(plan.client_state for plan in plans):
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
    at_once, collate, why = scenario.numerics.clients_at_once, scenario.data.collate, ""
    if at_once == 1:
        return
    if all(_trains_one_by_one(plan) for plan in plans):
        why = "relays, central training, local.dp and schedule = 'asynchronous' take one client after the other"
    elif collate:
        why = f"batches of data.collate = '{collate.name}' differ in shape from client to client"
    if why:
        raise ScenarioError(f"numerics.clients_at_once: {at_once} has no effect, since {why}; leave it out")
    for plan in plans:
        if (dp := plan.phase.settings.dp) and dp.secure:
            raise ScenarioError(
                "numerics.clients_at_once: the last bits of an update depend on the clients that train with it, which "
                f"phases.{plan.phase.name}.dp.secure rules out; leave it out"
            )


def _trains_one_by_one(plan: PhasePlan) -> bool:
    phase = plan.phase
    return not phase.has_server or phase.local.dp is not None or isinstance(phase, FullyAsynchronousPhase)


def _check_hosts(scenario: Scenario, plan: PhasePlan, where: str) -> None:
    hosts, at_once = scenario.resources.fewest_hosts, scenario.numerics.clients_at_once
    most = most_homes(at_once)
    if hosts > most and plan.keeps_client_state:
        together = f", {at_once} of which train at once," if at_once > 1 else ""
        raise ScenarioError(
            f"resources.hosts: {hosts} is too many for {where}: clients that keep state{together} can be divided among "
            f"at most {most} workers; set resources.hosts={most}"
        )


def _check_local_objective(plan: PhasePlan, noun: str, where: str) -> None:
    name, algorithm = plan.phase.algorithm.name, plan.objective
    if algorithm.no_relay:
        raise ScenarioError(
            f"{where}: '{name}' cannot run in a {noun}: {algorithm.no_relay}; use it in a parallel phase"
        )
    if not algorithm.trains:
        raise ScenarioError(f"{where}: '{name}' cannot run in a {noun}: its clients do not train")
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
