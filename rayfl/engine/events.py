"""What the scheduler tells whoever started it, in order, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Model transfers and bytes between server and clients, as the protocol would move them, since the start."""

    transfers: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.transfers + other.transfers, self.bytes + other.bytes)


@dataclass(frozen=True)
class RoundDone:
    """A round was committed.

    round counts from 1 through the whole scenario, round_in_phase from 1 in its phase; train_loss is the mean
    over the round's local steps; visits and steps are of this round alone; seconds since the scheduler started.
    """

    phase: str
    round: int
    round_in_phase: int
    train_loss: float
    visits: int
    steps: int
    traffic: Traffic
    seconds: float


@dataclass(frozen=True)
class ClientScore:
    """One client's own test examples under the model of an evaluated round, and, if asked, after personalisation."""

    client: int
    samples: int
    loss: float
    accuracy: float
    personalized_accuracy: float | None = None


@dataclass(frozen=True)
class Evaluated:
    """The model after a round, on the whole test set; comes later than that round's RoundDone.

    loss: mean cross-entropy; accuracy in 0..1; clients is empty unless `evaluation.per_client` or
        `evaluation.personalize` asks for it.
    personalized_accuracy: the mean over clients, each of weight 1, where `evaluation.personalize` asks for it.
    """

    phase: str
    round: int
    loss: float
    accuracy: float
    samples: int
    clients: tuple[ClientScore, ...] = ()
    personalized_accuracy: float | None = None


@dataclass(frozen=True)
class Waiting:
    """The watchdog: nothing came back for `seconds`; `outstanding` says which visits on which host are awaited."""

    phase: str
    round: int
    seconds: float
    outstanding: tuple[str, ...]


Event = RoundDone | Evaluated | Waiting
