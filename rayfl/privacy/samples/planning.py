"""Finds the noise of a run with `local.dp`, and what the run will spend of its clients' privacy, before it starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.planning.phase_plan import PhaseNoise, PhasePlan, plan_phases
from rayfl.planning.workload import Population
from rayfl.privacy.lattice import check_noise
from rayfl.privacy.samples.notes import notes
from rayfl.privacy.samples.planned_account import PlannedAccount, dp_of
from rayfl.privacy.samples.planned_updates import touches_clients


@dataclass(frozen=True)
class PlannedPhase:
    """A phase with `local.dp`.

    Attributes:
        name: The phase's name.
        noise: Its noise multiplier: of all clients, or [clients]; clients that take no part have the largest.
        epsilon: The largest of any client at its end, including earlier phases; an upper bound if clients may be left
            out or cohorts are secret, and None if no accountant covers the batches.
        target: The epsilon for which the noise was found, if any.
    """

    name: str
    noise: float | np.ndarray
    epsilon: float | None
    target: float | None


@dataclass(frozen=True)
class SamplePlan:
    """The noise that hides samples in a run, and what output and records say about it beforehand.

    Attributes:
        noise: By phase, the noise multiplier of `local.dp`. Empty if no phase has it.
        phases: The phases that have it.
        notes: Warnings, and reasons why an epsilon is large, one line each.
    """

    noise: Sequence[PhaseNoise] = ()
    phases: Sequence[PlannedPhase] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def plan_sample_privacy(scenario: Scenario, populations: Sequence[Population]) -> SamplePlan:
    """Finds the noise of every phase with `local.dp`, and what clients will have spent after it.

    Args:
        scenario: The scenario.
        populations: The clients of each phase.

    Raises:
        ScenarioError: The phases' options cannot share one account, or a target or budget is impossible.
    """
    plans = plan_phases(scenario)
    private = [plan for plan in plans if plan.phase.local.dp is not None and touches_clients(plan)]
    if not private:
        return SamplePlan([_fixed_noise(plan) for plan in plans] if _any_dp(plans) else ())
    _check_account(plans, private)
    noise: list[PhaseNoise] = [_fixed_noise(plan) for plan in plans]
    phases, account = [], PlannedAccount(scenario, plans, populations)
    largest: float | None = None
    for plan in private:
        dp = dp_of(plan)
        found = account.noise_of(plan)
        if dp.secure:
            check_noise(float(np.min(found)), f"phases.{plan.phase.name}.local.dp")
        noise[plan.number] = found
        account.book(plan, found)
        if all(dp_of(before).sampling == "poisson" for before in private if before.number <= plan.number):
            # a budget stops clients from spending more, but refunds nothing
            limit = math.inf if dp.max_epsilon is None else max(largest or 0.0, dp.max_epsilon)
            largest = min(account.maximum(), limit)
        else:
            largest = None
        phases.append(PlannedPhase(plan.phase.name, found, largest, dp.target_epsilon))
    sizes = populations[private[0].number].sizes
    return SamplePlan(noise, phases, notes(sizes, dp_of(private[0]).delta, phases[-1].epsilon, account.costliest))


def _any_dp(plans: Sequence[PhasePlan]) -> bool:
    return any(plan.phase.local.dp is not None for plan in plans)


def _fixed_noise(plan: PhasePlan) -> PhaseNoise:
    """The noise multiplier given by a phase, if any; phases on the server's samples, in no account, must give it."""
    dp = plan.phase.local.dp
    if dp is not None and dp.noise_multiplier is None and not touches_clients(plan):
        raise ScenarioError(
            f"phases.{plan.phase.name}.local.dp.target_epsilon: the phase trains on the server's samples, which are in "
            "no client's account; give noise_multiplier"
        )
    return None if dp is None else dp.noise_multiplier


def _check_account(plans: Sequence[PhasePlan], private: Sequence[PhasePlan]) -> None:
    """Checks that everything the phases spend fits in one account."""
    first = private[0]
    for plan in plans:
        where = f"phases.{plan.phase.name}.local.dp"
        if touches_clients(plan) and plan.phase.local.dp is None:
            raise ScenarioError(
                f"{where}: is missing; without it, this phase exposes the samples that '{first.phase.name}' protects; "
                "add it (noise_multiplier = 0 for a run without a guarantee), or leave it out everywhere"
            )
    budgeted: PhasePlan | None = None
    for plan in private:
        where, dp = f"phases.{plan.phase.name}.local.dp", dp_of(plan)
        for key in ("delta", "accountant", "secure"):
            own, others = getattr(dp, key), getattr(dp_of(first), key)
            if own != others:
                raise ScenarioError(
                    f"{where}.{key}: is {own}, but {others} in '{first.phase.name}': a client has one account over all "
                    "phases; use the same value everywhere"
                )
        if dp.target_epsilon is not None and budgeted is not None:
            raise ScenarioError(
                f"{where}.target_epsilon: earlier spending depends on the clients that max_epsilon of "
                f"'{budgeted.phase.name}' leaves out; give noise_multiplier"
            )
        if dp.target_epsilon is not None and any(dp_of(before).sampling == "shuffled" for before in private):
            raise ScenarioError(f"{where}.target_epsilon: no accountant covers sampling = 'shuffled' of other phases")
        budgeted = plan if dp.max_epsilon is not None else budgeted
