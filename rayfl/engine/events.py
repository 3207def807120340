"""Events that the scheduler reports while a run is under way, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rayfl.engine.totals import Simulated, Traffic
from rayfl.local.spending import SpendingByClient


@dataclass(frozen=True)
class ClientScalars:
    """The scalars that one client reported in a round.

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
        round: Number of the round in the whole scenario, from 1.
        round_in_phase: Number of the round in its phase, from 1.
        train_loss: Mean loss over the local steps of this round.
        client_updates: Number of client updates in this round.
        steps: Number of local steps in this round.
        traffic: Traffic since the start of the run.
        seconds: Seconds since the scheduler started.
        scalars: Named numbers that the algorithm, the server and the clients reported, aggregated over the round.
        client_scalars: Scalars that single clients reported.
        spent: Privacy that the round spent, by client.
        left_out: Clients of its cohort that did not take part, since that would have exceeded `local.dp.max_epsilon`.
        simulated: Simulated time and energy since the start of the run; None without [participation].
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
    """Scores of the model of an evaluated round on the test samples of one client.

    Attributes:
        client: The client's id.
        samples: Number of samples that were scored.
        scores: Values by column of clients.parquet: `loss` and every metric over these samples; with
            `evaluation.personalize` also every metric after personalization, such as `personalized_accuracy`. None
            where the labels leave a metric undefined.
        set: Name of the set of samples: `test`, `validation` or `client_test`.
    """

    client: int
    samples: int
    scores: Mapping[str, float | None]
    set: str = "test"


@dataclass(frozen=True)
class Evaluated:
    """Scores of the model of a round on the test samples. Follows the round's RoundDone, perhaps after other events.

    Attributes:
        phase: Name of the phase.
        round: Number of the round in the whole scenario, from 1.
        scores: Values by column of metrics.jsonl: `test_loss` and every metric over the test samples, such as
            `test_accuracy`; the same for other held-out sets, such as `validation_accuracy`; with
            `evaluation.personalize`, the unweighted mean over clients of every metric after personalization, such as
            `personalized_accuracy`; and the statistics of `evaluation.over_clients`, such as
            `client_test_accuracy_variance`, with the number of clients that they describe. None where the labels leave
            a metric undefined; what is not finite is infinite or NaN.
        samples: Number of test samples that were scored.
        clients: Scores by client; empty unless requested (`Evaluation.scores_by_client`).
        remarks: Remarks of metrics for the reader, such as on a collapse.
        confusion: Numbers of test samples by label, then by predicted class, if a metric of every class is reported;
            otherwise empty.
    """

    phase: str
    round: int
    scores: Mapping[str, float | None]
    samples: int
    clients: tuple[ClientScore, ...] = ()
    remarks: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Waiting:
    """The watchdog reports that no process has answered for a while.

    Attributes:
        phase: Name of the phase.
        round: Number of the round in the whole scenario, from 1.
        seconds: Seconds since the last answer.
        outstanding: The outstanding client updates and their worker processes, or the process that does not answer.
    """

    phase: str
    round: int
    seconds: float
    outstanding: tuple[str, ...]


@dataclass(frozen=True)
class RoundSettled:
    """A round is completely reported, and no later round was committed.

    With `RunPlan.settles`, all rounds settle, and the consumer of this event can still make the round the last one
    (`Session.stop`). Otherwise only the last round of a run that is stopped settles.

    Attributes:
        phase: Name of the phase.
        round: Number of the round in the whole scenario, from 1.
    """

    phase: str
    round: int


@dataclass(frozen=True)
class BudgetSpent:
    """A phase or the whole run ended early because clients' privacy budget is spent.

    Attributes:
        phase: Name of the phase.
        round: Number of the first round that was not run, in the whole scenario.
        reason: The reason in one line.
        ends_run: Whether the run ends too, rather than continuing with a later phase.
        left_out: The clients without budget left for that round, if the phase ended.
        limit: The key of the limit that would have been exceeded.
    """

    phase: str
    round: int
    reason: str
    ends_run: bool
    left_out: tuple[int, ...] = ()
    limit: str = "local.dp.max_epsilon"


@dataclass(frozen=True)
class SnapshotTaken:
    """A snapshot of the run after a round was written; later rounds may have been reported since.

    Attributes:
        phase: Name of the phase.
        round: Number of the last committed round in the whole scenario.
        snapshot: The snapshot, as `RunSnapshot.to_json` writes it.
    """

    phase: str
    round: int
    snapshot: str


@dataclass(frozen=True)
class SnapshotFailed:
    """A snapshot could not be written; the run continues.

    Attributes:
        phase: Name of the phase.
        round: The last committed round at that time.
        reason: The reason.
    """

    phase: str
    round: int
    reason: str


@dataclass(frozen=True)
class Recovering:
    """A process of the run died or does not answer; the run continues and repeats the rounds since its last snapshot.

    Attributes:
        phase: Name of the phase.
        round: Number of the round after which it continues, in the whole scenario.
        reason: What happened.
        attempt: Attempts since a round was last committed for the first time, including this one.
        most: The largest number of attempts before the run ends.
        pause_s: Seconds to wait before the attempt.
    """

    phase: str
    round: int
    reason: str
    attempt: int
    most: int
    pause_s: float


@dataclass(frozen=True)
class HostRestarted:
    """A worker process died, was restarted, and repeats its client updates.

    Attributes:
        phase: Name of the phase.
        round: Number of the last committed round at that time, in the whole scenario.
        host: The worker's number.
        times: How often this worker has been restarted.
    """

    phase: str
    round: int
    host: int
    times: int


@dataclass(frozen=True)
class HostsChanged:
    """The run continues with more worker processes, since there is room for them, or with fewer than before.

    Attributes:
        phase: Name of the phase.
        round: Number of the round after which their number changed, in the whole scenario.
        before: Number of workers before.
        hosts: Number of workers now.
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
    | HostsChanged
)
"""All events that the scheduler reports while a scenario runs."""


class EventConsumer(Protocol):
    """A consumer of a run's events: records, progress, the summary, callbacks."""

    def add(self, event: Event) -> Event | None:
        """Processes one event; events arrive in the order in which the scheduler reports them.

        Returns:
            The event for the next consumers, if it changed; otherwise None.
        """

    def state(self) -> Mapping[str, Any]:
        """The state after the latest event, to continue from: text, finite numbers, booleans, lists, dictionaries."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`; called before the first event."""
