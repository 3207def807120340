"""The privacy that rounds spend under `local.dp`, and the clients that may still take part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rayfl.data.held_out import pool_number
from rayfl.engine.plan.cohort import candidates
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.sample_accesses import PlannedUpdates, is_pool
from rayfl.engine.totals import UpdateReport
from rayfl.errors import RayflError
from rayfl.local.spending import Mechanism, PrivacyAccounts, Spending, SpendingByClient, by_client_in_total
from rayfl.privacy.composition import RenyiFilter
from rayfl.privacy.release_ledger import ChargedRound, Charges
from rayfl.privacy.samples.calibration import with_noise, without_noise

BUDGET, SAMPLES, CLIENTS = "local.dp.max_epsilon", "local.dp.target_epsilon", "dp.target_epsilon"

AGAIN = "{}: the rounds that were repeated after a stop count twice"


@dataclass(frozen=True)
class Admission:
    """The part of a cohort that takes part in a round.

    Attributes:
        cohort: Clients whose budget allows it, in the order drawn.
        left_out: The other clients.
        ends: Why the phase ends before this round; empty if it does not.
        ends_run: Whether the run ends as well.
        limit: The key of the limit that ends it.
    """

    cohort: Sequence[int]
    left_out: tuple[int, ...] = ()
    ends: str = ""
    ends_run: bool = False
    limit: str = ""


@dataclass(frozen=True)
class BudgetSnapshot:
    """The state after a committed round that later admissions depend on, as plain data.

    Attributes:
        spent: Privacy spent, by client.
        left_out: The clients that were left out of any round so far.
    """

    spent: SpendingByClient = field(default_factory=dict)
    left_out: tuple[int, ...] = ()


class PrivacyBudget:
    """Books the privacy that committed rounds spent, and keeps clients within `local.dp.max_epsilon`.

    Rounds are submitted before earlier ones are committed, so the planned spending of those counts as spent. When a run
    with `secure` noise resumes, it also enforces targets, whose plans do not include rounds that were repeated.

    Args:
        seed: The scenario's seed.
        plans: The run's phases.

    Attributes:
        is_spent: Whether any round spends privacy of samples, or is charged in a ledger; without, nothing is asked.
    """

    def __init__(self, seed: int, plans: Sequence[PhasePlan]) -> None:
        self.is_spent = any(plan.phase.local.dp for plan in plans)
        self._seed, self._plans = seed, plans
        self._planned = [PlannedUpdates(plan) for plan in plans]
        self._accounts, self._repeated = PrivacyAccounts(), PrivacyAccounts()
        self._charges: Charges | None = None
        self._left_out: set[int] = set()
        self._under_way: dict[int, dict[int, Spending]] = {}
        self._left_out_of: dict[int, tuple[int, ...]] = {}

    def snapshot(self) -> BudgetSnapshot:
        """Returns the state after the last committed round."""
        return BudgetSnapshot(self._accounts.spent(), tuple(sorted(self._left_out)))

    def restore(self, snapshot: BudgetSnapshot) -> None:
        """Continues after the round of a snapshot."""
        self._accounts.restore(snapshot.spent)
        self._left_out, self._under_way, self._left_out_of = set(snapshot.left_out), {}, {}

    def charge_to(self, charges: Charges) -> None:
        """Charges every later round in a ledger, and counts rounds that were charged but have to be repeated."""
        self._charges, self.is_spent = charges, True
        self._repeated.book(charged.spent for charged in charges.discarded)

    def admit(self, index: RoundIndex, cohort: Sequence[int]) -> Admission:
        """Selects the participants of a round and counts their spending, first in the ledger if there is one."""
        admission = self._within_targets(index, cohort) or self._within_budget(index, cohort)
        if self._charges is not None and not admission.ends:
            spent = self._updates(index, admission.cohort)
            self._charges.ledger.charge(ChargedRound(index.phase, index.round, tuple(admission.cohort), spent))
        return admission

    def _within_targets(self, index: RoundIndex, cohort: Sequence[int]) -> Admission | None:
        """Ends a run before a round that would exceed a target, as unplanned rounds were charged after a stop."""
        if self._charges is None or not self._charges.discarded:
            return None
        last, dp = self._charges.last_round, self._plans[index.phase].phase.local.dp
        if last is not None and index.round > last:
            return Admission((), (), f"another round would exceed {AGAIN.format(CLIENTS)}", True, CLIENTS)
        if dp is None or dp.target_epsilon is None:
            return None
        filter, updates = RenyiFilter(dp.target_epsilon, dp.delta, dp.secure), self._updates(index, cohort)
        spent = tuple(client for client in cohort if not self._fits(filter, index, client, updates[client]))
        if spent:
            reason = f"an update of {_named(spent)} would exceed {AGAIN.format(SAMPLES)}"
            return Admission((), spent, reason, True, SAMPLES)
        self._under_way[index.round] = updates
        return Admission(cohort)

    def _within_budget(self, index: RoundIndex, cohort: Sequence[int]) -> Admission:
        dp = self._plans[index.phase].phase.local.dp
        if dp is None or dp.max_epsilon is None:
            return Admission(cohort)
        assert dp.noise_multiplier is not None  # `SampleDP` has no budget without it
        filter, updates = RenyiFilter(dp.max_epsilon, dp.delta, dp.secure), self._updates(index, cohort)
        fits = {client: self._fits(filter, index, client, updates[client]) for client in cohort}
        admitted, left_out = [client for client in cohort if fits[client]], tuple(c for c in cohort if not fits[c])
        limit = f"{BUDGET} = {dp.max_epsilon:g}"
        if left_out and dp.when_spent == "stop":
            return Admission((), left_out, f"an update of {_named(left_out)} would exceed {limit}", True, BUDGET)
        if left_out and not admitted and not self._any_client_fits(filter, index, dp.noise_multiplier):
            return Admission((), left_out, f"an update of any client would exceed {limit}", limit=BUDGET)
        self._under_way[index.round] = {client: updates[client] for client in admitted}
        self._left_out_of[index.round] = left_out
        return Admission(admitted, left_out)

    def _updates(self, index: RoundIndex, cohort: Sequence[int]) -> dict[int, Spending]:
        """Returns the spending of a round's updates, by client or pool of samples; nothing without `local.dp`."""
        plan, planned = self._plans[index.phase], self._planned[index.phase]
        fixed = plan.phase.local.dp.noise_multiplier if plan.phase.local.dp else None
        pool, spendings = pool_number("clients", plan.num_clients), dict[int, Spending]()
        for client in cohort:
            noise = plan.noise_multiplier(client) if fixed is None else fixed
            if noise is not None and client <= pool:  # the server's samples are not in any client's account
                spendings[client] = with_noise(planned.in_round(client, index, self._seed), noise)
        return spendings

    def commit(
        self, index: RoundIndex, reports: Iterable[UpdateReport], unanswered: Iterable[int] = ()
    ) -> SpendingByClient:
        """Books the privacy that a finished round spent.

        Args:
            index: The round.
            reports: Reports on its client updates.
            unanswered: Clients whose updates do not count ([participation]). They are charged all the same, since the
                update may have reached the server too late.

        Returns:
            Privacy spent, by client.

        Raises:
            RayflError: A client spent more than its algorithm had declared, so plans and budgets do not hold.
        """
        spent = by_client_in_total([*(report.spent for report in reports), self._updates(index, tuple(unanswered))])
        self._check(index, spent)
        self._accounts.book([spent])
        self._under_way.pop(index.round, None)
        self._left_out.update(self._left_out_of.get(index.round, ()))
        return spent

    def left_out_of(self, index: RoundIndex) -> tuple[int, ...] | None:
        """Returns, once per round, the clients left out of a committed round; None in phases that leave none out."""
        return self._left_out_of.pop(index.round, None)

    def leave_out(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        """Records the clients left out of a round that is not run, and returns them."""
        self._left_out.update(clients)
        return clients

    def _any_client_fits(self, filter: RenyiFilter, index: RoundIndex, noise_multiplier: float) -> bool:
        """Whether any client that later rounds may draw can afford an update."""
        planned, number = self._planned[index.phase], self._plans[index.phase].num_clients
        return any(
            self._fits(filter, index, client, with_noise(planned.at_least(client), noise_multiplier))
            for client in candidates(self._plans[index.phase].phase, number)
        )

    def _fits(self, filter: RenyiFilter, index: RoundIndex, client: int, update: Spending) -> bool:
        plan = self._plans[index.phase]
        pool = pool_number("clients", plan.num_clients)
        if not is_pool(client, plan):
            return filter.admits(self._total(client, pool) + Counter(update))
        # spending of the pool counts for every client
        holders = {client for client in (*self._accounts.spent(), *self._repeated.spent()) if client < pool}
        kinds = {tuple(sorted(self._total(holder, pool).items())) for holder in holders}
        kinds.add(tuple(sorted(self._total(pool).items())))
        return all(filter.admits(Counter(dict(kind)) + Counter(update)) for kind in kinds)

    def _total(self, *accounts: int) -> Counter[Mechanism]:
        """Returns the total spending of some accounts, including rounds under way and repeated ones."""
        total: Counter[Mechanism] = Counter()
        for account in accounts:
            total.update(self._accounts.of(account))
            total.update(self._repeated.of(account))
            for by_client in self._under_way.values():
                total.update(by_client.get(account, {}))
        return total

    def _check(self, index: RoundIndex, spent: SpendingByClient) -> None:
        phase, pool = self._plans[index.phase].phase, pool_number("clients", self._plans[index.phase].num_clients)
        for client, spending in spent.items():
            if client > pool or phase.local.dp is None:
                continue
            planned = self._planned[index.phase].in_round(client, index, self._seed)
            if any(number > planned.get(access, 0) for access, number in without_noise(spending).items()):
                raise RayflError(
                    f"phases.{phase.name}.local.dp: in round {index.round} client {client} spent more than "
                    f"'{phase.algorithm.name}' plans for; its `sample_requests` must list every request that reads "
                    "samples"
                )
        budgeted = phase.local.dp is not None and phase.local.dp.max_epsilon is not None
        for client, update in self._under_way.get(index.round, {}).items() if budgeted else ():
            if dict(spent.get(client, {})) != dict(update):
                # otherwise admission to a round would depend on whether earlier rounds are over
                raise RayflError(
                    f"phases.{phase.name}.local.dp.max_epsilon: in round {index.round} client {client} spent less than "
                    f"'{phase.algorithm.name}' plans for; its `sample_requests` must list exactly the requests that "
                    "read samples"
                )


def _named(clients: Sequence[int]) -> str:
    if len(clients) == 1:
        return f"client {clients[0]}"
    return f"client {clients[0]} and {len(clients) - 1} more"
