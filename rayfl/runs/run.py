"""A run: opens or reopens its folder, follows its events, and completes its records however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rayfl.callbacks.callback import Callback
from rayfl.console import print_line, print_warning
from rayfl.data.split_facts import shown_split
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import (
    BudgetSpent,
    Event,
    EventConsumer,
    RoundDone,
    RoundSettled,
    SnapshotFailed,
    SnapshotTaken,
)
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import CheckpointError, ResourceError
from rayfl.files import reading
from rayfl.interruption import interruptible, is_interrupt
from rayfl.models.flat import FlatModel
from rayfl.privacy.release_ledger import ReleaseLedger
from rayfl.runs.announcement import announce_hosts
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.changes import plain_scenario
from rayfl.runs.checkpoint_writer import RunStorage
from rayfl.runs.checkpoints import Checkpoints
from rayfl.runs.committed_rounds import CommittedModels, LatestRounds
from rayfl.runs.ending import end_callbacks, end_early, how_to_resume, last_scores
from rayfl.runs.environment import describe_environment
from rayfl.runs.folder import CHECKPOINTS, model_of_phase
from rayfl.runs.follower import Follower
from rayfl.runs.privacy_record import PrivacyRecords, begin_to_charge
from rayfl.runs.progress import Progress
from rayfl.runs.records import Records
from rayfl.runs.run_lock import HeldError
from rayfl.runs.status import Status, Stop
from rayfl.runs.summary import EndSummary
from rayfl.steps import step
from rayfl.wording import one_line

if TYPE_CHECKING:
    import pyarrow as pa
    import torch


class Run:
    """A run that is followed on any backend; a context manager:

        with Records.within(folder) as records, Run(run_plan, model, records, callbacks, console) as run:
            run.connect(ray_session(run_plan, ...), "ray")
            for settled in run.follow():
                ...
            metrics, state_dict = run.finish()

    Between two rounds a run is plain data: a snapshot of its session and the result of `state`. A checkpoint holds
    both. A run created with that state on reopened records, and connected with the snapshot, continues as if it had
    never stopped. The state may be of a later round than the snapshot: events of rounds that it has seen are dropped.

    Args:
        run_plan: The run's plan.
        model: The initial model of the last phase; used to name the parts of later models.
        records: The records in the run's folder; `reopened` if `state` is given.
        callbacks: The callbacks in the order in which they are called. Some require `run_plan.settles`.
        console: Prints progress.
        state: The state of a reopened run.
        checkpoints: Receives the run's checkpoints; None to write none.
        ledger: Charges its rounds; None if noise is not `secure`.
        check_held: Raises a HeldError if another process has taken over the folder. Called before each checkpoint and
            before the final records.

    Attributes:
        status: The run's status.json.
        stopped: Who ended the run early, such as a callback, and the reason, if somebody did.

    Raises:
        RayflError: A callback cannot continue from its state.
        ResourceError: The folder lacks records that the state includes.
    """

    def __init__(
        self,
        run_plan: RunPlan,
        model: FlatModel,
        records: Records,
        callbacks: Sequence[Callback],
        console: Console,
        state: Mapping[str, Any] | None = None,
        checkpoints: Checkpoints | None = None,
        ledger: ReleaseLedger | None = None,
        check_held: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_held = check_held
        self._checkpoints, self._ledger = checkpoints, ledger
        self._storage = RunStorage(records, checkpoints, run_plan.scenario.checkpoint.on_failure == "continue", console)
        self._plan, self._records, self._console = run_plan, records, console
        self._scenario, self._constants = plain_scenario(run_plan.scenario), run_plan.constants
        self._models = CommittedModels(run_plan, model)
        self.stopped: Stop | None = None
        self._asked: tuple[str, str] | None = None
        self.status = Status(records.folder, sum(phase.rounds for phase in run_plan.scenario.phases))
        self._session: BackendSession | None = None
        self._seen, self._seconds, self._seconds_before = LatestRounds(), 0.0, 0.0
        self._goes_on = self._ended = False
        self._stack, self._showing = ExitStack(), ExitStack()
        if names := run_plan.result.store.client_names:
            records.name_clients(names)
        # a digest shows that the content is unchanged, not that rayfl wrote it
        restoring = partial(reading, records.folder / CHECKPOINTS, "as the state of a run", CheckpointError)
        if state is not None:
            with restoring():
                self._seen = LatestRounds(state["seen"])
                self._seconds = self._seconds_before = float(state["seconds"])
                records.restore(state["consumers"]["records"])
        self._privacy = PrivacyRecords(run_plan, records.folder)
        self._follower = Follower(
            callbacks, run_plan.scenario, run_plan.headlines, records.folder, console,
            lambda: self._models.of(self._session)[1], RunArchive(records.folder).rows if callbacks else (),
        )  # fmt: skip
        phases, headlines = run_plan.scenario.phases, run_plan.headlines
        self._summary = EndSummary(headlines)
        self._progress = Progress([(phase.name, phase.rounds) for phase in phases], console, headlines)
        self._consumers: dict[str, EventConsumer] = {
            "privacy": self._privacy,  # first, since it adds a round's epsilon to its evaluation
            "callbacks": self._follower,
            "status": self.status,
            "records": records,
            "summary": self._summary,
            "progress": self._progress,
        }
        if state is not None:
            with restoring():
                for name, consumer in self._consumers.items():
                    if consumer is not records:
                        consumer.restore(state["consumers"][name])
                stopped = Stop(**state["stopped"]) if state.get("stopped") else None
                of_scenario = {chosen.name for chosen in run_plan.scenario.callbacks}
                if stopped and stopped.callback in of_scenario and state["scenario"] == self._scenario:
                    self._end_as_stopped(stopped)  # it would stop the run again, but later

    def __enter__(self) -> Run:
        self._interrupts = self._stack.enter_context(interruptible())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self._showing.close()
            self._storage.close()
            if error is None or self._ended:
                return
            try:
                self._check_held()
            except HeldError:
                self._records.abandon()
                self.status.abandon()
                end_callbacks(self._follower, "failed", self._console)
                raise
            cause = self._interrupts.cause_of(error)
            self._charge_lost()
            go_on = how_to_resume(self._records.where, self._scenario)
            end_early(
                cause, self._session, self._models, self._records, self.status, self._console, self._privacy,
                0 if self._goes_on else self._seen.done,
                go_on if self._checkpoints is not None and self._checkpoints.any() else "",
            )  # fmt: skip
            end_callbacks(self._follower, "interrupted" if is_interrupt(error) else "failed", self._console)
        self._charge_lost(write=True)  # a scheduler elsewhere may have continued until now

    def connect(
        self,
        session: AbstractContextManager[BackendSession],
        backend: str,
        restore: Callable[[BackendSession], None] | None = None,
        place: GridPlace | None = None,
    ) -> BackendSession:
        """Opens a session, which the run closes, and calls the callbacks' `on_start`.

        Args:
            session: A session for the run's plan.
            backend: Name of the backend, for the records.
            restore: Called with the open session of a reopened run; restores a snapshot.
            place: The run's place in a grid, for the records.

        Raises:
            ResourceError: The hosts cannot start, or the snapshot is of a later round than the run's state.
        """
        self.status.running()
        with step(self._console, "starting", "workers"):
            opened = self._session = self._stack.enter_context(session)
            if restore is not None:
                restore(opened)
                self._check_joins(opened)
        if self._ledger is not None:
            begin_to_charge(self._plan, self._ledger, opened, self._privacy, self._console)
        self._goes_on = True
        self.status.hosts = lambda: opened.hosts
        self.status.running()
        announce_hosts(self._console, self._plan, opened, backend, self._records.where)
        self._records.write_scenario(self._plan.scenario.to_toml())
        self._records.write_environment(describe_environment(self._plan, backend, opened.hosts, place))
        store = self._plan.result.store
        if not self._plan.scenario.hides:
            self._records.write_split(shown_split(store))
        # its sums would be the exact labels of clients' test samples
        self._records.counts_classes = not (self._plan.scenario.hides and store.test_shards is not None)
        self._follower.start()
        return opened

    def follow(self, check: Callable[[], None] = lambda: None) -> Iterator[RoundSettled]:
        """Runs the scenario and passes every event to records, callbacks and progress.

        Args:
            check: Called after each event; an exception that it raises ends the run.

        Yields:
            Each settled round, after all consumers have seen it; a snapshot can be taken there.
        """
        assert self._session is not None
        self._showing.enter_context(self._progress)
        if self._checkpoints is not None:
            self._session.checkpoint_to(self._checkpoints.store)
        before = self.stopped
        if before is not None:
            self._session.stop(before.round)
        ends_with_checkpoint = self._checkpoints is not None and self._plan.scenario.checkpoint.ends
        with self._interrupts.second_raises(self._end_with_round) if ends_with_checkpoint else nullcontext():
            yield from self._followed(self._session, check)
        if self.stopped is before:  # a run that has ended as it was asked to has nothing left to interrupt
            self._interrupts.raise_last()
        self._showing.close()

    def _followed(self, session: BackendSession, check: Callable[[], None]) -> Iterator[RoundSettled]:
        for event in session.events():
            self._interrupts.check()
            check()
            self._storage.collect()
            if self._seen.has(event):
                continue
            if isinstance(event, RoundDone):
                event = replace(event, seconds=self._seconds_before + event.seconds)
                self._seconds = event.seconds
            for consumer in self._consumers.values():
                try:
                    event = consumer.add(event) or event
                except ResourceError as error:
                    if consumer not in (self.status, self._records):
                        raise
                    self._storage.not_recorded(error)
            self._seen.add(event)
            self._keep_end_of_phase(session, event)
            if self._follower.stopped:
                self.stop(*self._follower.stopped)
            if isinstance(event, RoundSettled):
                if self._asked and event.round < self.status.rounds:
                    self._end_as_stopped(Stop(*self._asked, event.round))
                    if self._plan.settles:
                        session.stop(event.round)
                yield event
            elif isinstance(event, SnapshotTaken):
                self._check_held()
                self._storage.begin(event.snapshot, self.state)
            elif isinstance(event, SnapshotFailed):
                self._storage.not_kept(event.reason)
        self._storage.collect(wait=True)

    def stop(self, who: str, reason: str) -> None:
        """Ends a connected run after the first round where that is possible; other threads may call this.

        Args:
            who: Who ends it, for the records; if several do, the first one counts.
            reason: The reason, in one line.
        """
        if self._asked is not None:
            return
        self._asked = who, reason
        if not self._plan.settles:
            assert self._session is not None
            self._session.stop(self.done + 1)

    def _end_as_stopped(self, stopped: Stop) -> None:
        self.stopped = stopped
        self.status.stop(stopped)

    @property
    def done(self) -> int:
        """The last committed round."""
        return self._seen.done

    def _keep_end_of_phase(self, session: BackendSession, event: Event) -> None:
        """Writes the model with which a phase ends, except the last one's, which is the run's result."""
        phases = self._plan.scenario.phases
        if not isinstance(event, RoundDone | BudgetSpent) or event.phase == phases[-1].name:
            return
        number = [phase.name for phase in phases].index(event.phase)
        last = list(accumulate(phase.rounds for phase in phases))[number]
        round = event.round if isinstance(event, RoundDone) else event.round - 1
        if (isinstance(event, RoundDone) and round < last) or round <= last - phases[number].rounds:
            return
        model = session.end_of_phase(round)
        if model is None:
            print_warning(self._console, f"the model at the end of '{event.phase}' was lost")
            return
        try:
            self._records.write_model(self._models.after(round, model), model_of_phase(number, event.phase))
        except ResourceError as error:
            self._storage.not_recorded(error)

    def state(self) -> dict[str, Any]:
        """Returns the run's state after the latest event, to reopen it: strings, finite numbers, lists and dicts.

        Also writes the records up to there to disk.

        Raises:
            RayflError: A callback's state is not plain data.
            ResourceError: The records cannot be written.
        """
        return {
            "scenario": self._scenario,
            "constants": self._constants,
            "seen": self._seen.state(),
            "seconds": self._seconds,
            "stopped": asdict(self.stopped) if self.stopped else None,
            "consumers": {name: consumer.state() for name, consumer in self._consumers.items()},
        }

    def finish(self) -> tuple[pa.Table, dict[str, torch.Tensor]]:
        """Completes the records of a run that has ended normally, then calls the callbacks' `on_end`.

        Returns:
            The metrics, and the final model with PyTorch's names.

        Raises:
            ResourceError: The records cannot be written, or another process has taken over the folder.
        """
        self._check_held()
        _, state = self._models.of(self._session)
        self._storage.check_folder()
        self._records.write_model(state)
        if self.stopped:
            self._privacy.stopped(self.stopped, self._follower.decided_by(self.stopped.callback))
        if self._ledger is not None:
            self._privacy.charge_discarded(self._ledger.discarded(self._seen.done))
        self._privacy.finish(self._records)
        self._records.close()
        metrics = self._records.metrics_table()
        self.status.finished()
        self._ended = True
        end_callbacks(self._follower, "finished", self._console)
        return metrics, state

    def summarize(self) -> None:
        """Prints the best score and the cost of each phase, and the scores of clients."""
        clients = last_scores(self._records.folder, self._plan.headlines, self._console)
        listed = self._plan.scenario.evaluation.per_client
        self._summary.show(self._console, self._records.where, self._privacy.summary(), clients, listed)

    def _charge_lost(self, write: bool = False) -> None:
        """Counts charged rounds that were under way when the run ended early; with `write`, updates privacy.json."""
        if self._ledger is None or not self._goes_on:
            return
        with suppress(ResourceError):  # resuming the run reports an unreadable ledger
            if self._privacy.charge_discarded(self._ledger.discarded(self._seen.done)) and write:
                self._privacy.write()

    def _check_joins(self, session: BackendSession) -> None:
        """Rejects a snapshot of a later round than the state, since the rounds between would lack records."""
        after = session.committed()[0]
        if after > self._seen.done or (self._ledger is not None and after != self._seen.done):
            raise ResourceError(
                f"the run would continue after round {after}, but the state of its records ends with round "
                f"{self._seen.done}: reopen it from a snapshot of that round or an earlier one"
            )

    def _end_with_round(self) -> None:
        """Passes an interruption on: the session ends with a snapshot after the current round."""
        assert self._session is not None
        cause = one_line(self._interrupts.cause_of(KeyboardInterrupt()))
        message = f"interrupted ({cause}): the run ends after the current round, with a checkpoint; again to end it now"
        self._session.interrupt()
        # in another thread, since this one may be printing
        Thread(target=print_line, args=[self._console, message], kwargs={"style": "yellow"}).start()
