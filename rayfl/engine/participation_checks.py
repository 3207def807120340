"""Checks [participation] and the phases' keys that depend on it."""

from __future__ import annotations

from rayfl.config.base_phase import BasePhase, PhaseSettings
from rayfl.config.cohort import Bernoulli, BySampler, Explicit
from rayfl.config.participation import Devices, Sessions
from rayfl.config.scenario import Scenario
from rayfl.engine.schedules.building import schedule_of
from rayfl.errors import ScenarioError
from rayfl.planning.participation import Everybody

BY_THE_CLOCK = ("deadline_s", "over_selection", "quorum")
"""Keys of a phase that decide which answers of a round count."""


def check_participation(scenario: Scenario) -> None:
    """Checks a scenario's simulated devices and how its phases use them.

    With `phases.N.dp`, clients may drop out or be unavailable with a probability that depends neither on their data nor
    on the other participants: a client then contributes to fewer rounds than accounted for, and the other clients'
    contributions stay the same. The sum is divided by the number of clients that were to take part
    (`rayfl.privacy.clients.planning`), since the number of answers is not hidden. Decisions by virtual time are
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
