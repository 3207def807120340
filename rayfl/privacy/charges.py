"""The account to which a scheduler charges the rounds of a run with `secure` noise."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.privacy.release_ledger import ChargedRound, ReleaseLedger


@dataclass(frozen=True)
class Charges:
    """The account of releases.

    Attributes:
        ledger: The ledger in which every round is charged before it begins.
        discarded: Rounds that were charged earlier but are no longer part of the run, such as repeated ones.
        last_round: The last round that `phases.N.dp.target_epsilon` permits in addition to those; None for no limit.
    """

    ledger: ReleaseLedger
    discarded: tuple[ChargedRound, ...] = ()
    last_round: int | None = None
