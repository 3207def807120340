"""[[phases]]: schedule, algorithm, number of rounds, cohort, what trains, and how."""

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
from rayfl.config.schedules import schedules
from rayfl.config.section import Named, check_idle
from rayfl.errors import ScenarioError

ONLY_PHASE = "training"
"""The name of a scenario's only phase, if it has been given none."""


def with_default_name(phases: Any) -> Any:
    """The phases as given, where a single one without a name gets one."""
    alone = isinstance(phases, list | tuple) and len(phases) == 1 and isinstance(phases[0], Mapping)
    return [{"name": ONLY_PHASE, **phases[0]}] if alone else phases


class ParallelPhase(BasePhase):
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
        deadline_s: With [participation], after so many virtual seconds the server goes on without the answers that are
            not in; from the beginning of every exchange, of which most algorithms have one a round.
        over_selection: With [participation], so many times the clients of `cohort` are drawn (a number of clients, a
            share, or `by_size`), rounded up. The round goes on as soon as as many as `cohort` says have answered, and
            the others are cut: the first answers by virtual time count.
        quorum: With [participation], a round with fewer answers than this is given up, and the model stays as it was.
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
            raise ValueError(f"names '{twice[0]}' twice")
        return report

    @model_validator(mode="after")
    def _no_idle_decay(self) -> ParallelPhase:
        check_idle(self, {"ema_decay": self.eval_model != "ema"}, "without eval_model = 'ema'")
        return self


class RelayPhase(BasePhase):
    """The model passes from client to client, each starting from what the previous one produced (CyclicFL's P1).

    Only the algorithm's local objective is used.

    Attributes:
        cohort: Which clients take part in a round.
        order: Order of the cohort: `sampled`, as drawn; `fixed`, by client number; `no_repeat`, as drawn, except that
            the last client of a round is never the first of the next.
        dp: Privacy of whole clients, with `level = "local"`: each noises the change that it makes to the model.
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
                "level = 'central' needs a server that adds noise to a sum, and a relay has none; use level = 'local'"
            )
        return dp


class LocalPhase(BasePhase):
    """Every client trains a model of its own on its own samples, and nothing is sent: federated training's baseline.

    A round is one client update of each client of the cohort, which goes on with the model that its last one ended
    with; the first begins with the phase's first model. Only the algorithm's local objective is used. Clients are
    scored with their own models on their own test samples (`evaluation.client_model` is "personal"); the global model
    stays as it was.

    Attributes:
        cohort: Which clients train in a round; by default all of them.
    """

    schedule: Literal["local"]
    cohort: Cohort = 1.0


class CentralPhase(BasePhase):
    """Training on pooled samples, on one host, with the clients' own training code; only the local objective is used.

    Attributes:
        data: `clients`: all of the clients' training samples; `server`: what only the server holds
            (`data.server_share`).
        keep_momentum: Whether a round begins with the velocity that the round before it ended with, so that rounds
            together are one long training; by default each begins without, as a client's update does.
    """

    schedule: Literal["central"]
    data: Literal["clients", "server"] = "clients"
    keep_momentum: bool = False

    @model_validator(mode="after")
    def _momentum_to_keep(self) -> CentralPhase:
        if self.keep_momentum and not (self.local.is_plain_sgd and self.local.momentum):
            raise ValueError("keep_momentum: there is none to keep without local.optimizer = 'sgd' and local.momentum")
        return self

    @property
    def cohort(self) -> Pooled:
        """What trains in place of clients."""
        return Pooled(pool=self.data)


def config_of(schedule: str) -> type[BasePhase]:
    """The keys of the phases of a schedule.

    Args:
        schedule: Its registered name, or `package.module:object`.

    Raises:
        ScenarioError: There is no such schedule, or it does not say what its keys are.
    """
    config = getattr(schedules.resolve(schedule), "config", None)
    if not (isinstance(config, type) and issubclass(config, BasePhase)):
        raise ScenarioError(
            f"'{schedule}' names no keys; give it `config`, a class derived from rayfl.schedules.BasePhase"
        )
    return config


def _of_its_schedule(value: Any) -> BasePhase:
    if isinstance(value, BasePhase):
        return value
    name = value.get("schedule", "parallel") if isinstance(value, Mapping) else None
    if not isinstance(name, str) or (name not in schedules and ":" not in name):
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
"""An ordered part of a scenario, with the keys of its schedule."""
