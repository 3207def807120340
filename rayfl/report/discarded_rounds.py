"""Records of rounds that the ledger charges but the run does not use: repeated after a stop, or lost at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rayfl.privacy.release_ledger import LEDGER_FILE, ChargedRound

WHAT = (
    "rounds that were charged before they began but do not contribute to the model: they were repeated after a stop, "
    "or still running at the end; epsilon counts each as another release to the same adversary"
)


def described(rounds: Sequence[ChargedRound]) -> dict[str, Any]:
    """The entry in privacy.json; empty without such rounds."""
    if not rounds:
        return {}
    numbers = [charged.round for charged in rounds]
    return {"charged_but_discarded": {"what": WHAT, "number": len(numbers), "rounds": numbers, "ledger": LEDGER_FILE}}


def beside(rounds: Sequence[ChargedRound]) -> str:
    """The text to add to a line that names the last round."""
    if not rounds:
        return ""
    more = "1 discarded round" if len(rounds) == 1 else f"{len(rounds)} discarded rounds"
    return f", including {more} (see {LEDGER_FILE})"
