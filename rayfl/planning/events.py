"""What the scheduler reports to whoever started it, in order, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rayfl.local.spending import SpendingByClient
from rayfl.planning.totals import Simulated, Traffic


@dataclass(frozen=True)
class ClientScalars:
    """What one client reported in a round, by name.

    Attributes:
        client: The client's id.
        values: Named numbers; they may be infinite or NaN.
    """

    client: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class RoundDone:
    """A round was committed.

    Attributes:
        phase: Name of the phase.
        round: Counts from 1 through the whole scenario.
        round_in_phase: Counts from 1 in its phase.
        train_loss: Mean over the local steps of this round.
        client_updates: Number of client updates in this round.
        steps: Number of local steps in this round.
        traffic: Since the start of the run.
        seconds: Since the scheduler started.
        scalars: Named numbers that the algorithm, the server and the clients reported, aggregated over the round.
        client_scalars: What single clients reported.
        spent: What the round spent of clients' privacy, by client.
        left_out: The clients of its cohort that did not take part, for it would have exceeded `local.dp.max_epsilon`.
        simulated: Since the start of the run; None without [participation].
    """

    phase: str
    round: int
    round_in_phase: int
    train_loss: float
    client_updates: int
    steps: int
    traffic: Traffic
    seconds: float
    scalars: Mapping[str, float] = field(default_factory=dict)
    client_scalars: tuple[ClientScalars, ...] = ()
    spent: SpendingByClient = field(default_factory=dict)
    left_out: tuple[int, ...] = ()
    simulated: Simulated | None = None


@dataclass(frozen=True)
class ClientScore:
    """The model of an evaluated round on the test samples of one client.

    Attributes:
        client: The client's id.
        samples: Number of its samples that were scored.
        scores: By column of clients.parquet: `loss` and every metric over these samples, and every metric after
            personalization, such as `personalized_accuracy`, where `evaluation.personalize` asks for it.
        set: Name of the set of samples: `test`, `validation` or `client_test`.
    """

    client: int
    samples: int
    scores: Mapping[str, float]
    set: str = "test"


@dataclass(frozen=True)
class Evaluated:
    """The model of a round on the test samples; follows that round's RoundDone, other events may come in between.

    Attributes:
        phase: Name of the phase.
        round: Counts from 1 through the whole scenario.
        scores: By column of metrics.jsonl: `test_loss` and every metric over the test samples, such as `test_accuracy`,
            and the same for other sets that are held out, such as `validation_accuracy`;
            where `evaluation.personalize` asks for it, the mean over clients, all of one weight, of every metric after
            personalization, such as `personalized_accuracy`; and what `evaluation.over_clients` asks for, such as
            `client_test_accuracy_variance`.
        samples: Number of test samples that were scored.
        clients: Empty unless scores by client are asked for (`Evaluation.scores_by_client`).
        remarks: What metrics have to say of scores that a reader should know of, such as a collapse.
    """

    phase: str
    round: int
    scores: Mapping[str, float]
    samples: int
    clients: tuple[ClientScore, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waiting:
    """The watchdog reports that nothing has come back for a while.

    Attributes:
        phase: Name of the phase.
        round: Counts from 1 through the whole scenario.
        seconds: For how long nothing has come back.
        outstanding: Which client updates are awaited, and from which host.
    """

    phase: str
    round: int
    seconds: float
    outstanding: tuple[str, ...]


@dataclass(frozen=True)
class RoundSettled:
    """All that there is to report about a round was reported, and no later round was committed.

    Whoever handles this event can still make the round the last one (`Session.stop`). Only where `Job.settles` asks
    for it.

    Attributes:
        phase: Name of the phase.
        round: Counts from 1 through the whole scenario.
    """

    phase: str
    round: int


@dataclass(frozen=True)
class BudgetSpent:
    """A phase, or the whole run, ended before its last round: clients' privacy budget is spent.

    Attributes:
        phase: Name of the phase.
        round: The first round that was not run, counted through the whole scenario.
        reason: Why, in one line.
        ends_run: Whether no later phase follows.
        left_out: The clients that have no budget left for that round, where the phase ended.
        limit: The key of what would have been exceeded.
    """

    phase: str
    round: int
    reason: str
    ends_run: bool
    left_out: tuple[int, ...] = ()
    limit: str = "local.dp.max_epsilon"


@dataclass(frozen=True)
class SnapshotTaken:
    """All that the run needs to go on after a round has been written; later rounds may have been reported since.

    Attributes:
        phase: Name of the phase.
        round: The last committed round, counted through the whole scenario.
        snapshot: As `RunSnapshot.to_json` writes it.
    """

    phase: str
    round: int
    snapshot: str


@dataclass(frozen=True)
class SnapshotFailed:
    """A snapshot could not be written; the run goes on.

    Attributes:
        phase: Name of the phase.
        round: The last committed round then.
        reason: Why.
    """

    phase: str
    round: int
    reason: str


@dataclass(frozen=True)
class Recovering:
    """Something of the run died or does not answer; the run goes on, and the rounds since come again.

    Attributes:
        phase: Name of the phase.
        round: The round after which it goes on, counted through the whole scenario.
        reason: What happened.
        attempt: Tries since a round was committed for the first time, this one included.
        most: So many of them, and the run ends.
        pause_s: How long it waits first.
    """

    phase: str
    round: int
    reason: str
    attempt: int
    most: int
    pause_s: float


@dataclass(frozen=True)
class HostRestarted:
    """A host died, was started again, and repeats its client updates.

    Attributes:
        phase: Name of the phase.
        round: The last committed round then, counted through the whole scenario.
        host: Its number.
        times: How often that has happened to it.
    """

    phase: str
    round: int
    host: int
    times: int


@dataclass(frozen=True)
class HostsAdded:
    """The cluster has room for more hosts, and the run goes on with them.

    Attributes:
        phase: Name of the phase.
        round: The round after which it does, counted through the whole scenario.
        before: How many hosts there were.
        hosts: How many there are.
    """

    phase: str
    round: int
    before: int
    hosts: int


Event = (
    RoundDone
    | Evaluated
    | Waiting
    | RoundSettled
    | BudgetSpent
    | SnapshotTaken
    | SnapshotFailed
    | Recovering
    | HostRestarted
    | HostsAdded
)
"""Everything that the scheduler reports while a scenario runs."""


class EventConsumer(Protocol):
    """Whatever follows a run: records, progress, the summary, callbacks."""

    def add(self, event: Event) -> Event | None:
        """Takes in one event; events come in the order in which the scheduler reports them.

        Returns:
            The event as those that follow are to see it; None for the same.
        """

    def state(self) -> Mapping[str, Any]:
        """What it needs to go on after the latest event: text, finite numbers, truth values, lists and tables."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` returned; called before the first event."""
