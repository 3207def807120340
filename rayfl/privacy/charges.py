"""To what a scheduler charges the rounds of a run with `secure` noise, and what was charged before."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.privacy.release_ledger import ChargedRound, ReleaseLedger


@dataclass(frozen=True)
class Charges:
    """The account of releases.

    Attributes:
        ledger: In which every round is charged before it begins.
        in_vain: Rounds that were charged before, and are no part of the run any more.
        last_round: The last one that `phases.N.dp.target_epsilon` leaves room for, beside those; None for no limit.
    """

    ledger: ReleaseLedger
    in_vain: tuple[ChargedRound, ...] = ()
    last_round: int | None = None
