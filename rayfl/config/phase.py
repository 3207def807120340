"""[[phases]]: schedule, algorithm, number of rounds, cohort, what trains, and how."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveInt,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.local import Local, ServerTraining, Train
from rayfl.config.privacy import ClientDP
from rayfl.config.section import Named, Section, check_idle, check_plain


class Bernoulli(Section):
    """Every client takes part with this probability, independently; redrawn while the cohort is empty.

    With central `dp` nothing is redrawn: a round without clients is noise alone.
    """

    bernoulli: Annotated[float, Field(gt=0, le=1)]


class BySize(Section):
    """This many clients without replacement, drawn in proportion to their numbers of training samples (q-FFL)."""

    by_size: Annotated[int, Field(strict=True, ge=1)]


class Explicit(Section):
    """Lists of client ids, one per round, repeated in order."""

    explicit: Annotated[tuple[Annotated[tuple[int, ...], Field(min_length=1)], ...], Field(min_length=1)]


class BySampler(Section):
    """Drawn by a class: `{ sampler = "power_of_choice", clients = 10, candidates = 30 }`.

    The other keys are its options, which are checked against the class.

    Attributes:
        sampler: A registered name, or `package.module:object` for one of the user's own.
    """

    model_config = ConfigDict(extra="allow")

    sampler: str

    @model_validator(mode="after")
    def _options_are_plain(self) -> BySampler:
        check_plain(self.options)
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options as they were given."""
        return dict(self.model_extra or {})


class Pooled(Section):
    """No clients, but pooled samples: what the rounds of central training have for a cohort.

    Attributes:
        pool: `clients` or `server`.
    """

    pool: Literal["clients", "server"]


def _cohort(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError(
            "cohort",
            "allowed are a number of clients (1, 2, ...), a share of them (0.0 < share <= 1.0), "
            "{ bernoulli = probability }, { by_size = number }, { explicit = [[client, ...], ...] }, "
            "or { sampler = name, ... }",
        ) from None


Cohort = Annotated[
    Annotated[int, Field(strict=True, ge=1)]
    | Annotated[float, Field(strict=True, gt=0, le=1)]
    | Bernoulli
    | BySize
    | Explicit
    | BySampler,
    WrapValidator(_cohort),
]


EvalModel = Literal["global", "average", "participants", "all", "ema"]
"""Which model is evaluated, exported and handed to the next phase.

`global`: the model that clients start from. `average`: the mean of the last two global models (FedExP). `participants`:
the mean of what the round's participants returned, weighted as the algorithm weights them (FedDyn). `all`: the mean
over all clients of what each returned last (FedDyn's and FedBug's code plot it); a client that never took part counts
with the phase's first model. `ema`: an exponential moving average of the global models after each round.
"""


class _Phase(Section):
    """Keys that phases of every schedule share.

    Attributes:
        name: Unique in the scenario.
        algorithm: A registered algorithm or `package.module:object`, with its options.
        rounds: Number of rounds; 0 leaves the phase out.
        until: The phase's last round, counted over the whole scenario; replaces `rounds`, which `Scenario` derives.
        train: What of the network trains; see `Train`. The rest stays as it is, batch norm's statistics included, and
            is neither sent nor counted as traffic.
        local: How clients train.
        local_objective_only: Of the schedule: whether only the algorithm's local objective is used, not its server.
        messages: Of the schedule: what the protocol moves to and from a client in a relay.
        noun: The schedule, for messages.
    """

    local_objective_only: ClassVar[bool] = True
    messages: ClassVar[tuple[Literal["model"], ...]] = ("model",)
    noun: ClassVar[str]

    name: str
    algorithm: Named = Named(name="fedavg")
    rounds: NonNegativeInt = 0
    until: PositiveInt | None = None
    train: Train = "all"
    local: Local = Local()

    @field_validator("algorithm", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`phases.0.algorithm.weighting=uniform` where no algorithm was named."""
        return {"name": "fedavg", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _rounds_or_until(self) -> _Phase:
        if ("rounds" in self.model_fields_set) == (self.until is not None):
            raise ValueError("give either rounds, how many, or until, the last round counted through all phases")
        return self


class ParallelPhase(_Phase):
    """The whole cohort trains at once from one model, and the server aggregates.

    Attributes:
        cohort: Which clients take part in a round.
        eval_model: See `EvalModel`; the default is the algorithm's.
        ema_decay: Of `eval_model = "ema"`: m <- decay m + (1 - decay) w after every round, m = w after the first.
        report: Scalars to report: `step` and `divergence` (see `rayfl.algorithms.diagnostics`), and what the algorithm
            adds, such as `norms` (SCAFFOLD, FedDyn). What costs nothing (FedExP's step) is always reported.
        transforms: Applied in order to a client's answer before it is summed: `top_k`, `quantize`, or your own.
        server_training: At the end of every round the new global model is trained on the server's samples
            (`data.server_share`), with the keys of `local`, whatever the algorithm: `{ steps = 5, lr = 0.01 }`. Without
            `epochs`, `steps` are taken however few samples there are. Its rate decays by its own keys.
        dp: Privacy of whole clients; see `ClientDP`.
    """

    local_objective_only: ClassVar[bool] = False
    noun: ClassVar[str] = "parallel phase"
    order: ClassVar[str] = "sampled"

    schedule: Literal["parallel"] = "parallel"
    cohort: Cohort
    eval_model: EvalModel | None = None
    ema_decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    transforms: tuple[Named, ...] = ()
    report: tuple[str, ...] = ()
    server_training: ServerTraining | None = None
    dp: ClientDP | None = None

    @property
    def hides_cohort(self) -> bool:
        """Whether who takes part stays hidden."""
        return self.dp is not None and self.dp.level == "central"

    @field_validator("report")
    @classmethod
    def _nothing_twice(cls, report: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [name for name in report if report.count(name) > 1]:
            raise ValueError(f"names '{twice[0]}' twice")
        return report

    @model_validator(mode="after")
    def _no_idle_decay(self) -> ParallelPhase:
        check_idle(self, {"ema_decay": self.eval_model != "ema"}, "without eval_model = 'ema'")
        return self


class RelayPhase(_Phase):
    """The model passes from client to client, each starting from what the previous one produced (CyclicFL's P1).

    Only the algorithm's local objective is used.

    Attributes:
        cohort: Which clients take part in a round.
        order: Order of the cohort: `sampled`, as drawn; `fixed`, by client number; `no_repeat`, as drawn, except that
            the last client of a round is never the first of the next.
        dp: Privacy of whole clients, with `level = "local"`: each noises the change that it makes to the model.
    """

    eval_model: ClassVar[EvalModel | None] = "global"
    ema_decay: ClassVar[float] = 0.99
    transforms: ClassVar[tuple[Named, ...]] = ()
    report: ClassVar[tuple[str, ...]] = ()
    server_training: ClassVar[ServerTraining | None] = None
    noun: ClassVar[str] = "relay"

    schedule: Literal["relay"]
    cohort: Cohort
    order: Literal["sampled", "fixed", "no_repeat"] = "sampled"
    dp: ClientDP | None = None
    hides_cohort: ClassVar[bool] = False

    @field_validator("dp")
    @classmethod
    def _has_no_server(cls, dp: ClientDP | None) -> ClientDP | None:
        if dp is not None and dp.level == "central":
            raise ValueError(
                "level = 'central' needs a server that adds noise to a sum, and a relay has none; use level = 'local'"
            )
        return dp


class CentralPhase(_Phase):
    """Training on pooled samples, on one host, with the clients' own training code; only the local objective is used.

    Attributes:
        data: `clients`: all of the clients' training samples; `server`: what only the server holds
            (`data.server_share`).
    """

    eval_model: ClassVar[EvalModel | None] = "global"
    ema_decay: ClassVar[float] = 0.99
    transforms: ClassVar[tuple[Named, ...]] = ()
    report: ClassVar[tuple[str, ...]] = ()
    server_training: ClassVar[ServerTraining | None] = None
    order: ClassVar[str] = "sampled"
    dp: ClassVar[ClientDP | None] = None
    hides_cohort: ClassVar[bool] = False
    messages: ClassVar[tuple[Literal["model"], ...]] = ()
    noun: ClassVar[str] = "central training"

    schedule: Literal["central"]
    data: Literal["clients", "server"] = "clients"

    @property
    def cohort(self) -> Pooled:
        return Pooled(pool=self.data)


def _schedule(value: Any) -> Any:
    given = value.get("schedule", "parallel") if isinstance(value, dict) else getattr(value, "schedule", None)
    return given if isinstance(given, str) else None


Phase = Annotated[
    Annotated[ParallelPhase, Tag("parallel")]
    | Annotated[RelayPhase, Tag("relay")]
    | Annotated[CentralPhase, Tag("central")],
    Discriminator(
        _schedule,
        custom_error_type="schedule",
        custom_error_message="schedule must be 'parallel', 'relay' or 'central'",
    ),
]
"""An ordered part of a scenario."""
