"""The noise of a run with `local.dp`, and what the run will spend of its clients' privacy, found before it starts.

Every client's account is planned after each phase, and the noise keeps it within its targets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rayfl.config.privacy import SampleDP
from rayfl.config.scenario import Scenario
from rayfl.data.held_out import pool_number
from rayfl.engine.plan.cohort import cohort_sizes, drawn_in_secret, draws_hidden
from rayfl.engine.plan.phase_plan import PhaseNoise, PhasePlan
from rayfl.engine.plan.run_plan import PlannedSpending
from rayfl.engine.plan.sample_accesses import PlannedUpdates, is_pool, participations, touches_clients
from rayfl.errors import ScenarioError
from rayfl.local.spending import Mechanism, Spending
from rayfl.privacy.composition import RenyiFilter, history
from rayfl.privacy.samples.accounting import accountant_of
from rayfl.privacy.samples.calibration import (
    Accesses,
    ImpossibleTargetError,
    Planned,
    noise_of_all,
    noise_of_each,
    times,
    with_noise,
)
from rayfl.privacy.samples.statement import notes
from rayfl.privacy.secure_noise import check_noise


def dp_of(plan: PhasePlan) -> SampleDP:
    """Returns `local.dp` of a phase that has it."""
    assert plan.phase.local.dp is not None
    return plan.phase.local.dp


class PlannedAccount:
    """The planned privacy spending of clients after each phase.

    Args:
        scenario: The scenario.
        plans: Its phases, at least one of which has `local.dp` on clients' samples.
    """

    def __init__(self, scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
        self._taken = participations(scenario, plans)
        self._spent: dict[int, dict[Mechanism, int]] = {}
        first = next(plan for plan in plans if plan.phase.local.dp is not None and touches_clients(plan))
        self._accountant = accountant_of(dp_of(first))
        self._first = first
        self._phases: list[str] = []
        self._limited = False
        self._hidden = [plan for plan in plans if draws_hidden(plan.phase, plan.num_clients)]
        self._secret = [plan for plan in plans if drawn_in_secret(plan.phase, plan.num_clients)]

    def noise_of(self, plan: PhasePlan) -> float | np.ndarray:
        """Returns the noise multiplier of a phase, given or found for its target; book all earlier phases first.

        Raises:
            ScenarioError: No noise meets the target, or the budget lets no client take part.
        """
        dp = dp_of(plan)
        if dp.noise_multiplier is not None:
            if dp.max_epsilon is not None:
                self._check_budget(plan, dp)
            return dp.noise_multiplier
        assert dp.target_epsilon is not None
        self._check_nothing_told(plan)
        planned, kinds = self._kinds(plan)
        pooled = any(is_pool(client, plan) for client in kinds)
        try:
            if dp.noise_for == "worst" or pooled:
                return noise_of_all(planned, dp.target_epsilon, self._accountant)
            each = noise_of_each(planned, dp.target_epsilon, self._accountant)
        except ImpossibleTargetError:
            raise self._impossible(plan, planned) from None
        noise = np.full(plan.num_clients, max(each))
        for client, kind in kinds.items():
            noise[client] = each[kind]
        return noise

    def book(self, plan: PhasePlan, noise: float | np.ndarray) -> None:
        """Adds what a phase will spend with this noise."""
        for client, accesses in self._accesses(plan).items():
            own = noise if isinstance(noise, float | int) else float(noise[client])
            self._spent[client] = with_noise(accesses, own, self._spent.get(client))
        self._phases.append(plan.phase.name)
        self._limited |= dp_of(plan).max_epsilon is not None or plan in self._secret

    def maximum(self) -> float:
        """The largest epsilon of any client."""
        return self._accountant.maximum(self._totals())

    def costliest(self) -> tuple[int, Spending] | None:
        """Returns the client that will have spent the most by RDP, and what; None if only pools of samples are used."""
        if not (clients := [client for client in self._spent if client < self._first.num_clients]):
            return None
        totals = [self._total(client) for client in clients]
        place = int(self._accountant.bounds(totals).argmax())
        return clients[place], totals[place]

    def _accesses(self, plan: PhasePlan) -> dict[int, Accesses]:
        """How each participating client or pool will access its samples in the whole phase."""
        planned = PlannedUpdates(plan)
        return {client: times(planned.at_most(client), rounds) for client, rounds in self._taken[plan.number].items()}

    def _kinds(self, plan: PhasePlan) -> tuple[list[Planned], Mapping[int, int]]:
        """The distinct kinds of participants of a phase, and the kind of each."""
        kinds: dict[object, int] = {}
        planned: list[Planned] = []
        of_client: dict[int, int] = {}
        for client, accesses in self._accesses(plan).items():
            # what the pool of all clients' samples spends, every client spends
            befores = [self._total(client)]
            if is_pool(client, plan):
                distinct = {history(total): total for total in self._totals()}
                befores = list(distinct.values()) or [{}]
            for before in befores:
                key = history(before), tuple(sorted(accesses.items()))
                if key not in kinds:
                    kinds[key] = len(planned)
                    planned.append(Planned(before, accesses))
                of_client[client] = kinds[key]
        return planned, of_client

    def _total(self, client: int) -> Spending:
        """The spending of a client, including that of the pool of all clients' samples."""
        pool = pool_number("clients", self._first.num_clients)
        total: Counter[Mechanism] = Counter(self._spent.get(client, {}))
        if client != pool:
            total.update(self._spent.get(pool, {}))
        return total

    def _totals(self) -> list[Spending]:
        return [self._total(client) for client in self._spent]

    def _impossible(self, plan: PhasePlan, planned: Sequence[Planned]) -> ScenarioError:
        dp, where = dp_of(plan), f"phases.{plan.phase.name}.local.dp.target_epsilon"
        spent = self._accountant.maximum([each.earlier for each in planned])
        if spent >= dp.target_epsilon:  # type: ignore[operator]
            before = " and ".join(f"'{name}'" for name in self._phases)
            return ScenarioError(
                f"{where}: {dp.target_epsilon:g} is spent before the phase begins: after {before} a client is at "
                f"{spent:.3g}; give the earlier phase a smaller target or more noise, or this one a larger target"
            )
        return ScenarioError(
            f"{where}: no amount of noise meets {dp.target_epsilon:g} at delta = {dp.delta:g} with accountant "
            f"'{dp.accountant}'; use fewer rounds or steps, a larger target_epsilon, or a larger delta"
        )

    def _check_nothing_told(self, plan: PhasePlan) -> None:
        """Checks that the noise found for a target does not reveal a hidden cohort."""
        for before in self._hidden:
            if before.number <= plan.number:
                raise ScenarioError(
                    f"phases.{plan.phase.name}.local.dp.target_epsilon: its noise is public and depends on how often "
                    f"each client takes part, which phases.{before.phase.name}.dp hides; give noise_multiplier, whose "
                    "cost is counted during the run"
                )

    def _check_budget(self, plan: PhasePlan, dp: SampleDP) -> None:
        assert dp.max_epsilon is not None
        assert dp.noise_multiplier is not None
        where = f"phases.{plan.phase.name}.local.dp.max_epsilon"
        filter, planned = RenyiFilter(dp.max_epsilon, dp.delta, dp.secure), PlannedUpdates(plan)
        taken = self._taken[plan.number]
        updates = {client: with_noise(planned.at_least(client), dp.noise_multiplier) for client in taken}
        # the spending of an earlier phase is unknown if it leaves clients out or draws them secretly
        before = {} if self._limited else {client: self._total(client) for client in taken}
        if not any(filter.admits(Counter(before.get(client, {})) + Counter(updates[client])) for client in taken):
            least = min(self._accountant.bounds(list(updates.values())))
            raise ScenarioError(
                f"{where}: {dp.max_epsilon:g} lets no client take part: one update costs at least {least:.3g}, in "
                "addition to earlier phases; use a larger budget, more noise or fewer local steps"
            )
        if dp.when_spent == "leave_out":
            try:
                plan.algorithm.check_cohort(1, cohort_sizes(plan.phase, plan.num_clients)[1])
            except ScenarioError as error:
                raise ScenarioError(
                    f"{where}: leaves clients out of cohorts, but phases.{plan.phase.name}.algorithm.{error}; use "
                    "when_spent = 'stop'"
                ) from None


def plan_sample_privacy(scenario: Scenario, plans: Sequence[PhasePlan]) -> tuple[list[PhasePlan], PlannedSpending]:
    """Finds the noise of every phase with `local.dp`, and what clients will have spent after it.

    Args:
        scenario: The scenario.
        plans: Its phases, with their clients.

    Returns:
        The phases with their noise, in which clients that take no part have the largest; and the planned spending.

    Raises:
        ScenarioError: The phases' options cannot share one account, or a target or budget is impossible.
    """
    private = [plan for plan in plans if plan.phase.local.dp is not None and touches_clients(plan)]
    if not private:
        return [plan.with_facts(noise=_fixed_noise(plan)) for plan in plans], PlannedSpending()
    _check_account(plans, private)
    noise: list[PhaseNoise] = [_fixed_noise(plan) for plan in plans]
    account, epsilons = PlannedAccount(scenario, plans), dict[str, float | None]()
    largest: float | None = None
    for plan in private:
        dp = dp_of(plan)
        phase_noise = account.noise_of(plan)
        if dp.secure:
            check_noise(float(np.min(phase_noise)), f"phases.{plan.phase.name}.local.dp")
        noise[plan.number] = phase_noise
        account.book(plan, phase_noise)
        if all(dp_of(before).sampling == "poisson" for before in private if before.number <= plan.number):
            # a budget stops clients from spending more, but refunds nothing
            limit = math.inf if dp.max_epsilon is None else max(largest or 0.0, dp.max_epsilon)
            largest = min(account.maximum(), limit)
        else:
            largest = None
        epsilons[plan.phase.name] = largest
    first = private[0]
    remarks = notes(first.population.sizes, dp_of(first).delta, largest, account.costliest)
    return [plan.with_facts(noise=noise[plan.number]) for plan in plans], PlannedSpending(epsilons, remarks)


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
