"""Whether a phase can run by the virtual clock of [participation], and what has no effect without it."""

from __future__ import annotations

from rayfl.config.base_phase import BasePhase, PhaseSettings
from rayfl.config.cohort import Bernoulli, BySampler, Explicit
from rayfl.config.participation import Devices, Sessions
from rayfl.config.scenario import Scenario
from rayfl.engine.schedules.building import schedule_of
from rayfl.errors import ScenarioError
from rayfl.planning.participation import Everybody

BY_THE_CLOCK = ("deadline_s", "over_selection", "quorum")
"""Keys of a phase that say which answers of a round count."""


def check_participation(scenario: Scenario) -> None:
    """Checks what a scenario says of simulated devices, and what its phases make of them.

    With `phases.N.dp` clients may drop out and be unavailable with a probability, which depends neither on their data
    nor on who else takes part: a client then contributes to fewer rounds than are accounted for, and what the others
    contribute stays as it was. The sum is divided by the number of clients that were to take part
    (`rayfl.privacy.clients.planning`), since the number of answers is not hidden. What decides by virtual time is
    refused there: that depends on clients' numbers of samples, which dp hides, and with `over_selection` a client
    that is replaced by another also decides whether others count. `local.dp` hides samples, not their numbers, so it
    goes with everything; who was sent a model is charged whether or not its answer counts.

    Raises:
        ScenarioError: Something has no effect, or no meaning; names its key.
    """
    devices = scenario.participation
    if devices and all(phase.pool for phase in scenario.phases):
        raise ScenarioError("participation: has no effect where no phase asks clients to train; leave it out")
    for phase in scenario.phases:
        where = f"phases.{phase.name}"
        chosen = [key for key in BY_THE_CLOCK if getattr(phase.settings, key) != getattr(PhaseSettings(), key)]
        if devices is None:
            for key in chosen:
                raise ScenarioError(
                    f"{where}.{key}: has no effect without simulated devices, all of which answer at once; describe "
                    "them in [participation], or leave it out"
                )
            continue
        schedule = schedule_of(phase)
        if not isinstance(schedule.participation, Everybody):
            raise ScenarioError(
                f"{where}.schedule: '{phase.schedule}' has a participation of its own, which [participation] would "
                "replace; leave [participation] out"
            )
        if not schedule.keeps_time:
            raise ScenarioError(
                f"{where}.schedule: '{phase.schedule}' does not heed the virtual clock (its class says keeps_time = "
                "False), and [participation] has one; leave [participation] out"
            )
        _check_counting(phase, devices, where)
        if phase.settings.dp is not None:
            _check_hides_clients(phase, devices, chosen, where)


def _check_counting(phase: BasePhase, devices: Devices, where: str) -> None:
    settings = phase.settings
    if settings.deadline_s is not None and not devices.has_clock:
        raise ScenarioError(
            f"{where}.deadline_s: has no effect where nothing takes virtual time; give participation.steps_per_s, "
            "samples_per_s, down_bytes_per_s or up_bytes_per_s"
        )
    if settings.over_selection > 1 and isinstance(settings.cohort, Bernoulli | Explicit | BySampler):
        kind = {Bernoulli: "bernoulli", Explicit: "explicit", BySampler: "sampler"}[type(settings.cohort)]
        raise ScenarioError(
            f"{where}.over_selection: draws more clients than cohort says, and {{ {kind} = ... }} says no number of "
            "them; use a number or a share of clients, or by_size"
        )


def _check_hides_clients(phase: BasePhase, devices: Devices, chosen: list[str], where: str) -> None:
    for key in chosen:
        raise ScenarioError(
            f"{where}.{key}: whose answers count then depends on clients' numbers of samples and on who else takes "
            "part, which dp hides; leave it out (dropout and availability as probabilities are possible)"
        )
    if isinstance(devices.availability, Sessions):
        raise ScenarioError(
            "participation.availability: with sessions, who takes part depends on how long earlier rounds took, and "
            f"so on who took part in them, which {where}.dp hides; give a probability"
        )
    cohort = phase.settings.cohort
    if phase.hides_cohort and isinstance(cohort, Explicit) and len({len(clients) for clients in cohort.explicit}) > 1:
        raise ScenarioError(
            f"{where}.cohort: with [participation] and dp, sums are divided by the number of clients that were to take "
            "part, and these lists differ in length; make them equally long"
        )
