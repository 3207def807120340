"""How long a run may continue within `phases.N.dp.target_epsilon` after rounds that the plan did not include."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.planning.client_mechanism import ClientPlan
from rayfl.privacy.clients.statement import ClientAccount
from rayfl.privacy.release_ledger import ChargedRound


def last_round_within_targets(
    scenario: Scenario, plan: ClientPlan, sizes: np.ndarray, discarded: Sequence[ChargedRound]
) -> int | None:
    """Returns the last round after which no phase has exceeded its target; None if none ever does.

    Args:
        scenario: The scenario.
        plan: How it hides clients.
        sizes: int64 [clients], the number of training samples of each client.
        discarded: Rounds that were charged in addition to those of the run.
    """
    account, done = ClientAccount(scenario, plan, sizes, discarded), 0
    for phase in scenario.phases:
        rounds, done = range(done + 1, done + phase.rounds + 1), done + phase.rounds
        target = phase.settings.dp.target_epsilon if phase.settings.dp else None
        if target is not None and account.epsilon_of_covered(done) > target:
            return rounds.start - 1 + bisect_right(rounds, target, key=account.epsilon_of_covered)
    return None
