"""[[phases]]: a schedule, an algorithm, a number of rounds, who takes part, and how clients train."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.section import Named, Section


class Local(Section):
    """Local training: mini-batch SGD with a fresh optimiser at each visit.

    A visit takes `epochs` passes over the client's examples, and at most `steps` steps; CyclicFL's cap of 20 steps
    is `steps = 20` with the default single epoch, min(20, the client's number of batches).

    batch_size: a number, or "full" for all of the client's examples in one step.
    drop_last: leave out the last incomplete batch of an epoch (it is kept where it is the only one).
    lr: step size in round 1 of the scenario; lr_decay multiplies it after every round, counted through all phases.
    momentum, weight_decay: PyTorch's SGD (coupled weight decay, heavy-ball momentum).
    clip_norm: largest global L2 norm of the gradient, penalties of the algorithm included, weight decay not.
    """

    epochs: PositiveInt = 1
    steps: PositiveInt | None = None
    batch_size: PositiveInt | Literal["full"] = 32
    drop_last: bool = False
    lr: PositiveFloat = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat | None = None


class Bernoulli(Section):
    """Every client takes part with this probability, independently; drawn again while nobody does."""

    bernoulli: Annotated[float, Field(gt=0, le=1)]


class Given(Section):
    """Lists of client ids, one per round, repeated in order."""

    given: Annotated[tuple[Annotated[tuple[int, ...], Field(min_length=1)], ...], Field(min_length=1)]


def _cohort(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError(
            "cohort",
            "allowed are a number of clients (1, 2, ...), a share of them (0.0 < share <= 1.0), "
            "{ bernoulli = probability }, or { given = [[client, ...], ...] }",
        ) from None


Cohort = Annotated[
    Annotated[int, Field(strict=True, ge=1)] | Annotated[float, Field(strict=True, gt=0, le=1)] | Bernoulli | Given,
    WrapValidator(_cohort),
]


class Phase(Section):
    """An ordered part of a scenario.

    schedule: `relay` passes the model from client to client, each starting from what the previous one produced
        (CyclicFL's P1); `parallel` trains the whole cohort from one model and aggregates.
    algorithm: in a relay only its local training is used.
    order: of a relay's cohort: `sampled`, as drawn; `fixed`, by client id; `no_repeat`, as drawn, but the last
        client of a round is never the first of the next.
    """

    name: str
    schedule: Literal["relay", "parallel"] = "parallel"
    algorithm: Named = Named(name="fedavg")
    rounds: PositiveInt
    cohort: Cohort
    order: Literal["sampled", "fixed", "no_repeat"] = "sampled"
    local: Local = Local()

    @field_validator("algorithm", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`phases.0.algorithm.weighting=uniform` where no algorithm was named."""
        return {"name": "fedavg", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _order_is_of_a_relay(self) -> Phase:
        if self.order != "sampled" and self.schedule != "relay":
            raise ValueError("order is an option of schedule = 'relay'")
        return self
