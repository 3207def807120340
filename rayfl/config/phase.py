"""[[phases]]: a schedule, an algorithm, a number of rounds, who takes part, and how clients train."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
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


class Unfreezing(Section):
    """FedBug: a visit begins with the modules next to the input, and the others thaw one after another.

    share: P, the part of the visit's steps in which modules thaw; 0 freezes nothing.
    schedule: `paper`: at step k of K the first min(M, ceil(k M / (P K))) of M units train; `code`: units thaw every
        floor(P K / M) steps. Equal where P K / M is an integer; else the code's are all thawed a little earlier.
    units: `modules`, one by one, or a grouping that the network declares, such as a ResNet's `stages` or `blocks`.
    order: `bottom_up`, from the input to the output; `top_down` is the paper's ablation.
    """

    share: Annotated[float, Field(ge=0, le=1)]
    schedule: Literal["paper", "code"] = "paper"
    units: str = "modules"
    order: Literal["bottom_up", "top_down"] = "bottom_up"


class Local(Section):
    """Local training: mini-batch SGD with a fresh optimiser at each visit.

    A visit takes `epochs` passes over the client's examples, and at most `steps` steps; CyclicFL's cap of 20 steps
    is `steps = 20` with the default single epoch, min(20, the client's number of batches).

    batch_size: a number, or "full" for all of the client's examples in one step.
    drop_last: leave out the last incomplete batch of an epoch (it is kept where it is the only one).
    lr: step size in round 1 of the scenario; lr_decay multiplies it after every round, counted through all phases.
    lr_drops: rounds of the scenario after which lr is multiplied by lr_drop as well (FedBABU: a half and three
        quarters of the rounds; FPS: every 30).
    momentum, weight_decay: PyTorch's SGD (coupled weight decay, heavy-ball momentum).
    clip_norm: largest global L2 norm of the gradient, penalties of the algorithm included, weight decay not.
    unfreeze: gradual unfreezing. A frozen module gets no gradient, weight decay, momentum or penalty, and its
        gradient is not computed; its batch norm's running statistics still follow the batches.
    fixed_last: how many of the network's last modules are never trained (1 is FedBABU's fixed head).
    """

    epochs: PositiveInt = 1
    steps: PositiveInt | None = None
    batch_size: PositiveInt | Literal["full"] = 32
    drop_last: bool = False
    lr: PositiveFloat = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lr_drops: tuple[PositiveInt, ...] = ()
    lr_drop: Annotated[float, Field(gt=0, le=1)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat | None = None
    unfreeze: Unfreezing | None = None
    fixed_last: NonNegativeInt = 0


class Bernoulli(Section):
    """Every client takes part with this probability, independently; drawn again while nobody does."""

    bernoulli: Annotated[float, Field(gt=0, le=1)]


class BySize(Section):
    """This many clients without replacement, each with probability proportional to its training examples (q-FFL)."""

    by_size: Annotated[int, Field(strict=True, ge=1)]


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
            "{ bernoulli = probability }, { by_size = number }, or { given = [[client, ...], ...] }",
        ) from None


Cohort = Annotated[
    Annotated[int, Field(strict=True, ge=1)]
    | Annotated[float, Field(strict=True, gt=0, le=1)]
    | Bernoulli
    | BySize
    | Given,
    WrapValidator(_cohort),
]


class Phase(Section):
    """An ordered part of a scenario.

    schedule: `relay` passes the model from client to client, each starting from what the previous one produced
        (CyclicFL's P1); `parallel` trains the whole cohort from one model and aggregates.
    algorithm: in a relay only its local training is used.
    rounds: how many, 0 to leave the phase out; or instead
    until: the last round, counted through the whole scenario. A `Scenario` turns it into `rounds`.
    order: of a relay's cohort: `sampled`, as drawn; `fixed`, by client id; `no_repeat`, as drawn, but the last
        client of a round is never the first of the next.
    """

    name: str
    schedule: Literal["relay", "parallel"] = "parallel"
    algorithm: Named = Named(name="fedavg")
    rounds: NonNegativeInt = 0
    until: PositiveInt | None = None
    cohort: Cohort
    order: Literal["sampled", "fixed", "no_repeat"] = "sampled"
    local: Local = Local()

    @field_validator("algorithm", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`phases.0.algorithm.weighting=uniform` where no algorithm was named."""
        return {"name": "fedavg", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _rounds_or_until(self) -> Phase:
        if ("rounds" in self.model_fields_set) == (self.until is not None):
            raise ValueError("give either rounds, how many, or until, the last round counted through all phases")
        return self

    @model_validator(mode="after")
    def _order_is_of_a_relay(self) -> Phase:
        if self.order != "sampled" and self.schedule != "relay":
            raise ValueError("order is an option of schedule = 'relay'")
        return self
