"""Charges the rounds of a run with `secure` noise to its ledger, including those whose result was lost."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from rayfl.engine.job import Job, Session
from rayfl.privacy.charges import Charges
from rayfl.privacy.clients.targets import last_round_within_targets
from rayfl.privacy.release_ledger import ReleaseLedger
from rayfl.report.discarded_rounds import beside
from rayfl.report.privacy import PrivacyRecords


def new_ledger(job: Job, folder: Path) -> ReleaseLedger | None:
    """The ledger of a new run; None if its noise is not `secure`.

    Raises:
        ResourceError: It cannot be written, or the folder already has the ledger of another run.
    """
    return None if job.scenario.repeatable else ReleaseLedger.create(folder)


def begin_to_charge(
    job: Job, ledger: ReleaseLedger, session: Session, privacy: PrivacyRecords, console: Console
) -> None:
    """Makes a session charge its rounds from now on.

    Args:
        job: The run's job.
        ledger: The run's ledger.
        session: The open session, already restored if the run continues.
        privacy: Counts rounds that were charged but are not part of the run.
        console: Prints a remark on them.

    Raises:
        ResourceError: The ledger cannot be read or written.
    """
    after = session.committed()[0]
    ledger.begin(after)
    discarded = ledger.discarded(after)
    last = None
    if discarded:
        privacy.charge_discarded(discarded)
        if job.client_plan:
            last = last_round_within_targets(job.scenario, job.client_plan, job.result.population.sizes, discarded)
    if after or discarded:
        said = (
            f"secure noise: noise after round {after} is drawn anew, so the result differs from that of an "
            f"uninterrupted run; epsilon counts all releases{beside(discarded)}"
        )
        console.print(Text(said, style="yellow"), soft_wrap=True)
    session.charge_to(Charges(ledger, discarded, last))
