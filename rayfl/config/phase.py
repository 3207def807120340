"""[[phases]]: the keys of every schedule, such as algorithm, number of rounds, cohort, staleness and local training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.base_phase import BasePhase, EvalModel
from rayfl.config.cohort import Cohort, Pooled
from rayfl.config.local import ServerTraining
from rayfl.config.privacy import ClientDP
from rayfl.config.registry import Registry
from rayfl.config.section import Named, Section, check_idle
from rayfl.errors import ScenarioError


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


ONLY_PHASE = "training"
"""The name of a scenario's only phase if it has none."""


def with_default_name(phases: Any) -> Any:
    """The phases, with a default name for a single phase that has none."""
    alone = isinstance(phases, list | tuple) and len(phases) == 1 and isinstance(phases[0], Mapping)
    return [{"name": ONLY_PHASE, **phases[0]}] if alone else phases


class ParallelPhase(BasePhase):
    """The whole cohort trains at once from one model, and the server aggregates the answers.

    Attributes:
        cohort: Which clients take part in a round: a number of clients (`10`), a share of them (`0.1`), `{ bernoulli =
            0.1 }`, `{ by_size = 10 }`, `{ explicit = [[0, 3], [2]] }`, or `{ sampler = "power_of_choice", clients = 10,
            candidates = 30 }`. Numbers and shares are drawn uniformly without replacement.
        eval_model: Which model is evaluated, exported and passed to the next phase: `global` (the model that clients
            start from), `average` (the mean of the last two global models; FedExP), `participants` (the mean of the
            models that this round's participants returned, weighted as the algorithm weights them; FedDyn), `all` (the
            mean over all clients of the model that each returned last, or the phase's first model if it never took
            part), or `ema` (an exponential moving average of the global models). By default the algorithm decides.
        ema_decay: Decay of `eval_model = "ema"`, above 0 and below 1: m <- decay m + (1 - decay) w after every round, m
            = w after the first. Default: 0.99.
        transforms: Applied in this order to a client's answer before it is summed: `top_k`, `quantize`, or your own.
            Default: none.
        report: Additional scalars to report: `step` and `divergence`, and those that the algorithm provides, such as
            `norms` (SCAFFOLD, FedDyn). Scalars that cost nothing, such as FedExP's step, are always reported. Default:
            none.
        server_training: Trains the new global model on the server's samples (`data.server_share`) at the end of every
            round, with any algorithm; takes the keys of `local`: `{ steps = 5, lr = 0.01 }`. With `steps` but no
            `epochs`, all steps are taken, over as many passes as they need. Its learning rate decays by its own keys.
            By default the server does not train.
        dp: Client-level differential privacy (McMahan et al., ICLR 2018). By default none.
        deadline_s: Virtual seconds after which the server goes on without the missing answers, counted from the start
            of each exchange (most algorithms have one exchange per round). Needs [participation]. By default the server
            waits for all answers.
        over_selection: Factor of at least 1 by which more clients are drawn than `cohort` says, rounded up. The round
            ends as soon as the number that `cohort` says have answered, by virtual time; the others are cut. Needs
            [participation] and a cohort that is a number, a share or `by_size`. Default: 1.
        quorum: Minimum number of answers. A round with fewer is abandoned and leaves the model unchanged. Needs
            [participation]. Default: 1.
    """

    schedule: Literal["parallel"] = "parallel"
    cohort: Cohort
    eval_model: EvalModel | None = None
    ema_decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    transforms: tuple[Named, ...] = ()
    report: tuple[str, ...] = ()
    server_training: ServerTraining | None = None
    dp: ClientDP | None = None
    deadline_s: PositiveFloat | None = None
    over_selection: Annotated[float, Field(ge=1)] = 1.0
    quorum: PositiveInt = 1

    @field_validator("report")
    @classmethod
    def _nothing_twice(cls, report: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [name for name in report if report.count(name) > 1]:
            raise ValueError(f"lists '{twice[0]}' twice")
        return report

    @model_validator(mode="after")
    def _no_idle_decay(self) -> ParallelPhase:
        check_idle(self, {"ema_decay": self.eval_model != "ema"}, "without eval_model = 'ema'")
        return self


class RelayPhase(BasePhase):
    """Sequential (cyclic) training: each client starts from the previous client's result (CyclicFL's first phase).

    Only the algorithm's local objective is used.

    Attributes:
        cohort: Which clients take part in a round; see `ParallelPhase`.
        order: Order of the clients in a round: `sampled` (the default), as drawn; `fixed`, by client id; `no_repeat`,
            as drawn, except that the last client of a round is never the first of the next.
        dp: Client-level differential privacy with `level = "local"`, the only level that a relay supports: each client
            adds noise to its change of the model. By default none.
    """

    schedule: str
    cohort: Cohort
    order: Literal["sampled", "fixed", "no_repeat"] = "sampled"
    dp: ClientDP | None = None

    @field_validator("dp")
    @classmethod
    def _has_no_server(cls, dp: ClientDP | None) -> ClientDP | None:
        if dp is not None and dp.level == "central":
            raise ValueError(
                "level = 'central' needs a server that adds noise to a sum, which a relay does not have; "
                "use level = 'local'"
            )
        return dp


class LocalPhase(BasePhase):
    """Every client trains its own model on its own samples and sends nothing: the baseline of federated training.

    A round is one client update for each client of the cohort. It continues from the client's own model after its last
    update; the first update starts from the phase's first model. Only the algorithm's local objective is used. Clients
    are scored with their own models on their own test samples (`evaluation.client_model` is "personal"); the global
    model does not change.

    Attributes:
        cohort: Which clients train in a round; see `ParallelPhase`. Default: all clients (1.0).
    """

    schedule: Literal["local"]
    cohort: Cohort = 1.0


class CentralPhase(BasePhase):
    """Centralised training on pooled samples with the clients' local training code, in one worker process.

    Only the algorithm's local objective is used.

    Attributes:
        data: Which samples are pooled: `clients` (the default), all training samples of all clients; `server`, the
            samples that only the server holds (`data.server_share`).
        keep_momentum: Whether a round starts with the momentum buffer of the previous round, which makes all rounds one
            continuous training. Needs plain `sgd` with `local.momentum`. By default the buffer starts at zero in each
            round, as in a client update.
    """

    schedule: Literal["central"]
    data: Literal["clients", "server"] = "clients"
    keep_momentum: bool = False

    @model_validator(mode="after")
    def _momentum_to_keep(self) -> CentralPhase:
        if self.keep_momentum and not (self.local.is_plain_sgd and self.local.momentum):
            raise ValueError("keep_momentum needs local.optimizer = 'sgd' with local.momentum above 0")
        return self

    @property
    def cohort(self) -> Pooled:
        """The pooled samples that train instead of clients."""
        return Pooled(pool=self.data)


SHIPPED: Mapping[str, type[BasePhase]] = {
    "parallel": ParallelPhase,
    "relay": RelayPhase,
    "buffered": BufferedPhase,
    "asynchronous": FullyAsynchronousPhase,
    "local": LocalPhase,
    "central": CentralPhase,
}
"""The keys of the phases of rayfl's own schedules, by the schedule's name."""


def config_of(schedule: str) -> type[BasePhase]:
    """The class of the keys of a schedule's phases.

    Args:
        schedule: The name of one of rayfl's own schedules, or `package.module:object`.

    Raises:
        ScenarioError: The schedule does not exist or does not declare its keys.
    """
    if schedule in SHIPPED:
        return SHIPPED[schedule]
    config = getattr(Registry("schedule", {}).resolve(schedule), "config", None)
    if not (isinstance(config, type) and issubclass(config, BasePhase)):
        raise ScenarioError(
            f"'{schedule}' does not declare its keys; set its `config` to a class derived from "
            "rayfl.schedules.BasePhase"
        )
    return config


def _of_its_schedule(value: Any) -> BasePhase:
    if isinstance(value, BasePhase):
        return value
    name = value.get("schedule", "parallel") if isinstance(value, Mapping) else None
    if not isinstance(name, str) or (name not in SHIPPED and ":" not in name):
        shipped = "'parallel', 'relay', 'buffered', 'asynchronous', 'local' or 'central'"
        raise PydanticCustomError(
            "schedule", "schedule must be {shipped}, or 'package.module:object'", {"shipped": shipped}
        )
    try:
        return config_of(name).model_validate(value)
    except ScenarioError as error:
        raise ValueError(f"schedule: {error}") from None


Phase = Annotated[
    SerializeAsAny[
        ParallelPhase | RelayPhase | BufferedPhase | FullyAsynchronousPhase | LocalPhase | CentralPhase | BasePhase
    ],
    PlainValidator(_of_its_schedule),
]
"""A phase of a scenario, with the keys of its schedule."""
