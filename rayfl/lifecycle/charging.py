"""A run with `secure` noise begins or goes on: its ledger is told, and what was charged in vain is counted."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from rayfl.engine.job import Job, Session
from rayfl.privacy.charges import Charges
from rayfl.privacy.clients.targets import last_round_within_targets
from rayfl.privacy.release_ledger import ReleaseLedger
from rayfl.report.in_vain import beside
from rayfl.report.privacy import PrivacyRecords


def new_ledger(job: Job, folder: Path) -> ReleaseLedger | None:
    """The ledger of a run that begins; None where its noise is not `secure`.

    Raises:
        ResourceError: It cannot be written, or the folder has that of another run.
    """
    return None if job.scenario.repeatable else ReleaseLedger.create(folder)


def begin_to_charge(
    job: Job, ledger: ReleaseLedger, session: Session, privacy: PrivacyRecords, console: Console
) -> None:
    """Has a session charge its rounds from here on.

    Args:
        job: What runs.
        ledger: Of the run.
        session: Open, and restored where the run goes on.
        privacy: Counts what was charged in vain.
        console: Where that is said.

    Raises:
        ResourceError: The ledger cannot be read or written.
    """
    after = session.committed()[0]
    ledger.begin(after)
    in_vain = ledger.in_vain(after)
    last = None
    if in_vain:
        privacy.charge_in_vain(in_vain)
        if job.client_plan:
            last = last_round_within_targets(job.scenario, job.client_plan, job.result.population.sizes, in_vain)
    if after or in_vain:
        said = (
            f"secure noise: what comes after round {after} is drawn anew, so the result has not the bits of an "
            f"undisturbed run; epsilon counts all releases{beside(in_vain)}"
        )
        console.print(Text(said, style="yellow"), soft_wrap=True)
    session.charge_to(Charges(ledger, in_vain, last))
