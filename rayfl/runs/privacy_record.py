"""privacy.json and the ledger: the guarantees of a run, the epsilon spent so far, and the rounds with `secure` noise.

The ledger also charges rounds whose result was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rayfl.console import print_line
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import Evaluated, Event
from rayfl.engine.plan.client_statement import last_round_within_targets
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ResourceError
from rayfl.files import write_json
from rayfl.privacy.release_ledger import ChargedRound, Charges, ReleaseLedger
from rayfl.runs.epsilon import ClientPrivacy, SamplePrivacy, beside
from rayfl.runs.folder import PRIVACY_FILE
from rayfl.runs.records import Records
from rayfl.runs.status import Stop


class PrivacyRecords:
    """Tracks the privacy that a run spends; rewrites privacy.json at every evaluation and at the end.

    The file has a table `samples` for runs with `local.dp`, and `clients` for those with `phases.N.dp`. A run with
    neither has no such file.

    Args:
        run_plan: The run's plan.
        folder: The folder of the run.
    """

    def __init__(self, run_plan: RunPlan, folder: Path) -> None:
        self._path = folder / PRIVACY_FILE
        self._samples = SamplePrivacy(run_plan) if run_plan.spending.epsilons else None
        self._clients = ClientPrivacy(run_plan) if run_plan.accounting else None
        self._discarded: Sequence[ChargedRound] = ()

    def state(self) -> dict[str, Any]:
        return {name: followed.state() for name, followed in self._followed().items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, followed in self._followed().items():
            followed.restore(state[name])

    def add(self, event: Event) -> Event:
        """Takes in one event; an evaluation gets the scores `epsilon` and `client_epsilon`.

        Raises:
            ResourceError: privacy.json cannot be written.
        """
        for followed in self._followed().values():
            event = followed.add(event)
        if isinstance(event, Evaluated):
            self.write()
        return event

    def charge_discarded(self, rounds: Sequence[ChargedRound]) -> bool:
        """Counts rounds that a ledger charges but the run does not use; returns whether they have changed."""
        if rounds == self._discarded:
            return False
        self._discarded = rounds
        for followed in self._followed().values():
            followed.charge_discarded(rounds)
        return True

    def stopped(self, stop: Stop, decided_by: str | None) -> None:
        """Records that a callback ended the run.

        Args:
            stop: The callback, its last round and its reason.
            decided_by: The column of public scores that it used for the decision, if it declares one.
        """
        reason = f"callback '{stop.callback}' ended the run after round {stop.round} ({stop.reason}): epsilon is that "
        reason += "of the completed rounds, and " + (
            f"the decision, by '{decided_by}' on public samples, costs nothing"
            if decided_by
            else "covers the model as if their number had been fixed in advance; the decision itself may reveal "
            "something about clients' data, since callbacks read values without noise, and no account covers it"
        )
        for followed in self._followed().values():
            followed.end_early(reason)

    def finish(self, records: Records, model_round: int | None = None) -> None:
        """Completes privacy.json, and adds every client's epsilon to the records.

        Args:
            records: Records of the run, not closed yet.
            model_round: The round of the saved model, if it may be later than the last event.

        Raises:
            ResourceError: A file cannot be written.
        """
        if self._samples:
            self._samples.finish(records)
        self.write(model_round)

    def summary(self) -> str:
        """One line for samples and one for clients; empty without either."""
        lines = [followed.summary() for followed in self._followed().values()]
        return "\n".join(f"{line}; details in {PRIVACY_FILE}" for line in lines)

    def write(self, model_round: int | None = None) -> None:
        """Writes privacy.json."""
        content = {name: followed.content(model_round) for name, followed in self._followed().items()}
        if not content:
            return
        try:
            write_json(self._path, content)
        except OSError as error:
            raise ResourceError(f"cannot write '{self._path}': {error.strerror or error}") from error

    def _followed(self) -> dict[str, SamplePrivacy | ClientPrivacy]:
        named = {"samples": self._samples, "clients": self._clients}
        return {name: followed for name, followed in named.items() if followed}


def new_ledger(run_plan: RunPlan, folder: Path) -> ReleaseLedger | None:
    """The ledger of a new run; None if its noise is not `secure`.

    Raises:
        ResourceError: It cannot be written, or the folder already has the ledger of another run.
    """
    return None if run_plan.scenario.repeatable else ReleaseLedger.create(folder)


def begin_to_charge(
    run_plan: RunPlan, ledger: ReleaseLedger, session: BackendSession, privacy: PrivacyRecords, console: Console
) -> None:
    """Makes a session charge its rounds from now on.

    Args:
        run_plan: The run's plan.
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
        if run_plan.accounting:
            last = last_round_within_targets(run_plan, discarded)
    if after or discarded:
        message = (
            f"secure noise: noise after round {after} is drawn anew, so the result differs from that of an "
            f"uninterrupted run; epsilon counts all releases{beside(discarded)}"
        )
        print_line(console, message, style="yellow")
    session.charge_to(Charges(ledger, discarded, last))
