"""[[phases]] of asynchronous training: the server steps whenever answers arrive, by the virtual clock."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rayfl.config.base_phase import BasePhase, EvalModel
from rayfl.config.cohort import Cohort
from rayfl.config.section import Named, Section, check_idle


class Staleness(Section):
    """s(tau): the weight of an answer to a model that is tau server steps old; s(0) = 1.

    Write only the name (`"polynomial"`) to use the default options, or a table. The functions are those of Xie, Koyejo
    and Gupta (2019), section 5.2, where a is `exponent` or `slope`, and b is `delay`.

    Attributes:
        name: `constant`: s = 1. `polynomial`: s = (1 + tau) ** -exponent. `hinge`: s = 1 up to tau = delay, then 1 / (1
            + slope (tau - delay)).
        exponent: Exponent of `polynomial`, at least 0. Default: 0.5, FedBuff's 1 / sqrt(1 + tau).
        slope: Slope of `hinge`, above 0. Default: 10.
        delay: Server steps before the `hinge` starts to discount. Default: 4.

    Example:
        >>> from rayfl.schedules import Staleness
        >>> Staleness(name="polynomial").discount(3)
        0.5
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
        """s(tau) for an update that began tau = `staleness` server steps ago."""
        if self.name == "polynomial":
            return float((1.0 + staleness) ** -self.exponent)
        if self.name == "hinge" and staleness > self.delay:
            return 1.0 / (1.0 + self.slope * (staleness - self.delay))
        return 1.0


class AsynchronousPhase(BasePhase):
    """Keys of phases in which every client starts and answers at its own time; a round is one step of the server.

    Attributes:
        cohort: Candidates of a round, in the forms of `ParallelPhase`: clients that may start training in free slots,
            in the order drawn. Default: all clients (1.0).
        concurrency: Number of clients that train at the same time; when one has answered, another takes its slot.
        staleness: How an answer to an older model is discounted: `constant`, `polynomial` or `hinge`, or a table with
            options (Xie, Koyejo and Gupta, 2019).
        eval_model: Which model is evaluated, exported and passed to the next phase: `global`, `average` or `ema`; see
            `ParallelPhase`. By default the algorithm decides.
        ema_decay: Decay of `eval_model = "ema"`, above 0 and below 1; see `ParallelPhase`. Default: 0.99.
        transforms: Applied in this order to a client's answer before it is used: `top_k`, `quantize`, or your own.
            Default: none.

    Example:
        >>> from pydantic import PositiveInt
        >>> from rayfl.schedules import AsynchronousPhase
        >>> class PairsPhase(AsynchronousPhase):
        ...     pairs: PositiveInt = 1
        ...     @property
        ...     def answers_per_step(self):
        ...         return 2 * self.pairs
        >>> phase = PairsPhase(schedule="my.module:Pairs", name="pairs", rounds=3, concurrency=10, staleness="constant")
        >>> phase.answers_per_step
        2
    """

    cohort: Cohort = 1.0
    concurrency: PositiveInt
    staleness: Staleness
    eval_model: EvalModel | None = None
    ema_decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    transforms: tuple[Named, ...] = ()

    @property
    def answers_per_step(self) -> int:
        """Number of answers that the server collects before it steps."""
        return 1

    @model_validator(mode="after")
    def _no_idle_decay(self) -> AsynchronousPhase:
        check_idle(self, {"ema_decay": self.eval_model != "ema"}, "without eval_model = 'ema'")
        return self


class BufferedPhase(AsynchronousPhase):
    """FedBuff: the server adds the discounted mean change of every `buffer` answers (Nguyen et al., AISTATS 2022).

    Attributes:
        buffer: K, the number of answers per server step.
        staleness: How an answer to an older model is discounted: `constant`, `polynomial` or `hinge`, or a table with
            options (Xie, Koyejo and Gupta, 2019). Default: `polynomial` with exponent 0.5, as in FedBuff.
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
        mixing: alpha, above 0 and at most 1; an answer is mixed in with a = alpha s(tau). Default: 0.6.
        staleness: How an answer to an older model is discounted: `constant`, `polynomial` or `hinge`, or a table with
            options (Xie, Koyejo and Gupta, 2019). Default: `constant`, no discount.
    """

    schedule: Literal["asynchronous"]
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6
    staleness: Staleness = Staleness(name="constant")
