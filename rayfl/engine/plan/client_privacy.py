"""How a run hides its clients, resolved before it starts: bounds, noise, and the privacy cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rayfl.algorithms.exchange import Released
from rayfl.config.cohort import Bernoulli
from rayfl.config.privacy import ClientDP, Quantile
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.client_ledger import ClientLedger
from rayfl.engine.plan.cohort import expected_cohort_size
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.privacy_checks import changing_values, check_account
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.privacy.clients.accounting import epsilon_of
from rayfl.privacy.clients.mechanism import ClientAccounting, ClientMechanism
from rayfl.privacy.secure_noise import check_noise

SMALLEST_NOISE, LARGEST_NOISE = 1e-2, 1e6
"""The range of noise multipliers that is searched for a target."""

PRECISION = 1e-3
"""Relative precision of the search for a noise multiplier."""


def plan_client_privacy(
    scenario: Scenario, plans: Sequence[PhasePlan], models: Sequence[FlatModel]
) -> tuple[Sequence[PhasePlan], ClientAccounting | None]:
    """Resolves `phases.N.dp`.

    Args:
        scenario: The scenario, resolved and checked.
        plans: Its phases, with their clients.
        models: The initial model of each phase.

    Returns:
        The phases with what hides their clients, and how it is accounted for; None if no phase has `dp`.

    Raises:
        ScenarioError: No account covers the run, the network has buffers, or a target cannot be met.
    """
    if not any(plan.phase.settings.dp for plan in plans):
        return plans, None
    sizes = plans[0].population.sizes
    delta, accountant = check_account(plans, len(sizes))
    secure = any(plan.phase.settings.dp.secure for plan in plans if plan.phase.settings.dp)
    hidden: list[PhasePlan] = []
    noise: list[float | None] = [None] * len(plans)
    for plan in plans:
        dp = plan.phase.settings.dp
        if dp is None:
            hidden.append(plan)
            continue
        where = f"phases.{plan.phase.name}"
        changing = changing_values(plan, models[plan.number], where)
        fixed = dp.noise_multiplier
        multiplier = _calibrated(scenario, plan, noise, sizes, (delta, accountant, secure)) if fixed is None else fixed
        noise[plan.number] = multiplier
        if secure:
            check_noise(multiplier, f"{where}.dp")
        hidden.append(plan.with_facts(hiding=_mechanism(scenario, plan, dp, multiplier, changing)))
    return hidden, ClientAccounting(delta, accountant, secure)


def _mechanism(
    scenario: Scenario, plan: PhasePlan, dp: ClientDP, noise: float, changing: tuple[tuple[int, int], ...]
) -> ClientMechanism:
    adaptive = dp.clip_norm if isinstance(dp.clip_norm, Quantile) else None
    cohort = plan.phase.settings.cohort
    denominator = None
    if plan.phase.hides_cohort and (isinstance(cohort, Bernoulli) or scenario.participation):
        denominator = expected_cohort_size(plan.phase, plan.num_clients)
    return ClientMechanism(
        level=dp.level,
        noise_multiplier=noise,
        clip_norm=dp.clip_norm.initial if isinstance(dp.clip_norm, Quantile) else dp.clip_norm,
        quantile=adaptive,
        denominator=denominator,
        changing=changing,
        released=plan.algorithm.releases() if plan.phase.has_server else Released(),
        secure=dp.secure,
        fraction_bits=scenario.numerics.fraction_bits,
    )


def _calibrated(
    scenario: Scenario,
    plan: PhasePlan,
    noise: Sequence[float | None],
    sizes: np.ndarray,
    account: tuple[float, str, bool],
) -> float:
    """The smallest noise multiplier of a phase, to four digits, that meets its target at its end."""
    dp, where = plan.phase.settings.dp, f"phases.{plan.phase.name}.dp.target_epsilon"
    assert dp is not None
    assert dp.target_epsilon is not None
    target, last = dp.target_epsilon, plan.first_round + plan.phase.rounds - 1

    ledger = ClientLedger(scenario, noise, sizes)

    def epsilon(multiplier: float | None) -> float:
        tried = [*noise[: plan.number], multiplier, *noise[plan.number + 1 :]]
        return epsilon_of(ledger.with_noise(tried).spent(last), *account)

    before = epsilon(None)
    if before >= target:
        raise ScenarioError(
            f"{where}: {target:g} is spent before this phase: the earlier ones spend epsilon {before:.3g} at delta "
            f"{account[0]:.3g}; give them more noise"
        )
    if not epsilon(LARGEST_NOISE) <= target:
        raise ScenarioError(
            f"{where}: no amount of noise meets {target:g} at delta {account[0]:.3g} after {plan.phase.rounds} rounds; "
            "use fewer rounds or a larger target"
        )
    low = high = 1.0
    while epsilon(high) > target:
        low, high = high, 2 * high
    while low == high or (low > SMALLEST_NOISE and epsilon(low) <= target):
        low, high = low / 2, low
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle) <= target else (middle, high)
    rounded = _rounded_up(high)
    if isinstance(dp.clip_norm, Quantile) and rounded >= dp.clip_norm.noise_multiplier:
        raise ScenarioError(
            f"{where}: {target:g} needs a noise multiplier of {rounded:g}, but clip_norm.noise_multiplier = "
            f"{dp.clip_norm.noise_multiplier:g} must be above it; use a larger one"
        )
    return rounded


def _rounded_up(value: float) -> float:
    """To four digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(value / unit) * unit:.4g}")
