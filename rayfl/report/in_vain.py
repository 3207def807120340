"""What records say of rounds that were charged and are no part of a run: repeated after a stop, or lost at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rayfl.privacy.release_ledger import LEDGER_FILE, ChargedRound

WHAT = (
    "rounds that were charged before they began and have no part in the model: they were repeated after a stop, or "
    "under way at the end; epsilon counts each as a release of its own, seen by the same adversary"
)


def described(rounds: Sequence[ChargedRound]) -> dict[str, Any]:
    """What privacy.json says of them; nothing without any."""
    if not rounds:
        return {}
    numbers = [charged.round for charged in rounds]
    return {"charged_in_vain": {"what": WHAT, "number": len(numbers), "rounds": numbers, "ledger": LEDGER_FILE}}


def beside(rounds: Sequence[ChargedRound]) -> str:
    """What a line that names the last round adds."""
    if not rounds:
        return ""
    more = "1 round" if len(rounds) == 1 else f"{len(rounds)} rounds"
    return f", {more} in vain included (see {LEDGER_FILE})"
