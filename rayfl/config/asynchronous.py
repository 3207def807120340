"""[[phases]] of asynchronous training: the server steps whenever answers are in, by the virtual clock."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rayfl.config.base_phase import BasePhase, EvalModel
from rayfl.config.cohort import Cohort
from rayfl.config.section import Named, Section, check_idle


class Staleness(Section):
    """s(tau): how much an answer counts that began tau steps of the server ago; s(0) = 1.

    `constant`: 1. `polynomial`: (1 + tau) ** -exponent. `hinge`: 1 up to tau = delay, and 1 / (1 + slope (tau - delay))
    from there on (Xie, Koyejo and Gupta, 2019, section 5.2, whose a is `exponent` and `slope`, and b is `delay`).

    Attributes:
        name: Which of them.
        exponent: Of `polynomial`; FedBuff's 1 / sqrt(1 + tau) is 0.5.
        slope: Of `hinge`.
        delay: Of `hinge`.
    """

    name: Literal["constant", "polynomial", "hinge"]
    exponent: NonNegativeFloat = 0.5
    slope: PositiveFloat = 10.0
    delay: NonNegativeInt = 4

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _no_idle_options(self) -> Staleness:
        polynomial, hinge = self.name == "polynomial", self.name == "hinge"
        check_idle(self, {"exponent": not polynomial, "slope": not hinge, "delay": not hinge}, f"with '{self.name}'")
        return self

    def discount(self, staleness: int) -> float:
        """s(tau), of the steps that the server has made since an update began."""
        if self.name == "polynomial":
            return float((1.0 + staleness) ** -self.exponent)
        if self.name == "hinge" and staleness > self.delay:
            return 1.0 / (1.0 + self.slope * (staleness - self.delay))
        return 1.0


class AsynchronousPhase(BasePhase):
    """Keys of the phases in which every client begins and answers at its own time; a round is a step of the server.

    Attributes:
        cohort: Candidates of a round: places that are free in it go to them, in the order drawn.
        concurrency: How many clients train at a time; where one has answered, another takes its place.
        staleness: How much less an answer to an older model counts.
        eval_model: `global`, `average` or `ema`; see `EvalModel`.
        ema_decay: See `ParallelPhase`.
        transforms: See `ParallelPhase`.
    """

    cohort: Cohort = 1.0
    concurrency: PositiveInt
    staleness: Staleness
    eval_model: EvalModel | None = None
    ema_decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    transforms: tuple[Named, ...] = ()

    @property
    def answers_per_step(self) -> int:
        """How many answers the server takes in before it steps."""
        return 1

    @model_validator(mode="after")
    def _no_idle_decay(self) -> AsynchronousPhase:
        check_idle(self, {"ema_decay": self.eval_model != "ema"}, "without eval_model = 'ema'")
        return self


class BufferedPhase(AsynchronousPhase):
    """FedBuff: the server adds the discounted mean change of every `buffer` answers (Nguyen et al., AISTATS 2022).

    Attributes:
        buffer: K, answers per step of the server.
    """

    schedule: Literal["buffered"]
    buffer: PositiveInt
    staleness: Staleness = Staleness(name="polynomial")

    @property
    def answers_per_step(self) -> int:
        """See `AsynchronousPhase.answers_per_step`."""
        return self.buffer


class FullyAsynchronousPhase(AsynchronousPhase):
    """FedAsync: the server mixes every answer's model into its own, w <- (1 - a) w + a w_i (Xie et al., 2019).

    Attributes:
        mixing: alpha; a = alpha s(tau).
    """

    schedule: Literal["asynchronous"]
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6
    staleness: Staleness = Staleness(name="constant")
