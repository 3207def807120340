"""[[phases]]: schedule, algorithm, number of rounds, cohort, and local training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rayfl.config.asynchronous import BufferedPhase, FullyAsynchronousPhase
from rayfl.config.base_phase import BasePhase, EvalModel
from rayfl.config.cohort import Cohort, Pooled
from rayfl.config.local import ServerTraining
from rayfl.config.privacy import ClientDP
from rayfl.config.section import Named, check_idle
from rayfl.errors import ScenarioError
from rayfl.registry import Registry

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

_OWN = Registry("schedule", {})


def config_of(schedule: str) -> type[BasePhase]:
    """The class of the keys of a schedule's phases.

    Args:
        schedule: The name of one of rayfl's own schedules, or `package.module:object`.

    Raises:
        ScenarioError: The schedule does not exist or does not declare its keys.
    """
    if schedule in SHIPPED:
        return SHIPPED[schedule]
    config = getattr(_OWN.resolve(schedule), "config", None)
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
