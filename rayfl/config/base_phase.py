"""Keys shared by the phases of all schedules, and the settings that can be read from any phase."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt, field_validator, model_validator

from rayfl.config.cohort import Cohort, Pooled
from rayfl.config.local import Local, Train
from rayfl.config.privacy import ClientDP
from rayfl.config.section import Named, Section

EvalModel = Literal["global", "average", "participants", "all", "ema"]
"""Which model is evaluated, exported and passed to the next phase.

`global`: the model that clients start from. `average`: the mean of the last two global models (FedExP). `participants`:
the mean of the models that this round's participants returned, weighted as the algorithm weights them (FedDyn). `all`:
the mean over all clients of the model that each returned last (plotted by the code of FedDyn and FedBug); a client that
has never taken part counts with the phase's first model. `ema`: an exponential moving average of the global models
after each round.
"""


@dataclass(frozen=True)
class PhaseSettings:
    """Settings that can be read from any phase, whether or not its schedule has the key.

    Attributes:
        cohort: Which clients take part; all of them where the schedule has no such key.
        order: Order of the cohort.
        eval_model: Which model is evaluated; None for the algorithm's own choice.
        ema_decay: See `ParallelPhase`.
        transforms: See `ParallelPhase`.
        report: See `ParallelPhase`.
        server_training: See `ParallelPhase`.
        dp: Client-level differential privacy.
        deadline_s: See `ParallelPhase`.
        over_selection: See `ParallelPhase`.
        quorum: See `ParallelPhase`.
    """

    cohort: Cohort | Pooled = 1.0
    order: str = "sampled"
    eval_model: EvalModel | None = None
    ema_decay: float = 0.99
    transforms: tuple[Named, ...] = ()
    report: tuple[str, ...] = ()
    server_training: Local | None = None
    dp: ClientDP | None = None
    deadline_s: float | None = None
    over_selection: float = 1.0
    quorum: int = 1


class BasePhase(Section):
    """Keys shared by the phases of all schedules; derive the keys of your own schedule from this class.

    A schedule supports the features that it has keys for: with `eval_model`, the algorithm's rounds run on a server;
    without it, only the algorithm's local objective is used. `transforms`, `report`, `server_training` and `dp` raise
    an error in a schedule that does not have the key.

    Attributes:
        schedule: How the rounds run: `parallel` (the default), `relay`, `buffered`, `asynchronous`, `local`, `central`,
            or `package.module:object` for your own schedule. The schedule decides which other keys the phase has.
        name: Unique in the scenario; overrides can address the phase by it (`phases.cyclic.rounds`). Required where
            there are several phases; a single phase without a name is called `training`.
        algorithm: A registered algorithm or `package.module:object`, with its options. Default: `fedavg`.
        rounds: Number of rounds; 0 leaves the phase out. Give either this or `until`; by default `until` decides.
        until: The phase's last round, counted over the whole scenario; must lie after the end of the previous phase. By
            default `rounds` decides; the resolved scenario always shows `rounds`.
        train: Which part of the network trains: `all` (the default), `head` (the feature layer, which turns features
            into outputs), `body` (everything else, as in FedBABU), or a list of names of modules as in
            `named_modules()`, each including its submodules, and of parameters, or shell patterns of both
            (`["*.adapter", "*.lora_*"]`). The rest keeps its values, batch norm statistics included, and is neither
            sent nor counted as traffic.
        local: How clients train.
        task: The phase's task. By default the scenario's `task`.
        model: The phase's network. By default the scenario's `model`. A phase starts from the weights of the previous
            one: it takes every tensor that has the same name and shape in both networks and leaves the rest as
            initialised. The run prints and records which tensors were taken.
        metrics: Metrics reported in this phase in addition to the loss. The first one ranks the phase's rounds; if the
            list is empty, the loss does. By default the metrics of the phase's own `task` if it has one, else those of
            `evaluation`.
        head: Whether the phase takes the feature layer from the previous phase (`keep`) or starts it from its initial
            values (`fresh`). By default `fresh` if the two phases' tasks have different names, else `keep`. No effect
            on the first phase.

    Example:
        >>> from pydantic import PositiveInt
        >>> from rayfl.schedules import BasePhase, Cohort
        >>> class RingsPhase(BasePhase):
        ...     cohort: Cohort
        ...     rings: PositiveInt = 3
        >>> RingsPhase(schedule="my.module:Rings", name="rings", rounds=10, cohort=12).rings
        3
    """

    schedule: str
    name: str
    algorithm: Named = Named(name="fedavg")
    rounds: NonNegativeInt = 0
    until: PositiveInt | None = None
    train: Train = "all"
    local: Local = Local()
    task: Named | None = None
    model: Named | None = None
    metrics: tuple[Named, ...] | None = None
    head: Literal["keep", "fresh"] | None = None

    @property
    def settings(self) -> PhaseSettings:
        """The phase's settings, with defaults for keys that its schedule does not have."""
        known = {field.name: getattr(self, field.name) for field in fields(PhaseSettings) if hasattr(self, field.name)}
        return PhaseSettings(**known)

    @property
    def has_server(self) -> bool:
        """Whether the algorithm's rounds run on a server; without one, only its local objective is used."""
        return "eval_model" in type(self).model_fields

    @property
    def hides_cohort(self) -> bool:
        """Whether the identity of the participants must stay hidden."""
        dp = self.settings.dp
        return dp is not None and dp.level == "central"

    @property
    def pool(self) -> Literal["clients", "server"] | None:
        """The pool whose samples train instead of clients; None if clients train."""
        cohort = self.settings.cohort
        return cohort.pool if isinstance(cohort, Pooled) else None

    @field_validator("algorithm", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """Allows `phases.0.algorithm.weighting=uniform` where no algorithm is named."""
        return {"name": "fedavg", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _rounds_or_until(self) -> BasePhase:
        if ("rounds" in self.model_fields_set) == (self.until is not None):
            raise ValueError(
                "give either rounds, the number of rounds, or until, the phase's last round counted over all phases"
            )
        return self
