"""What phases of every schedule have in common: the keys that all share, and what any part of rayfl may ask."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt, field_validator, model_validator

from rayfl.config.cohort import Cohort, Pooled
from rayfl.config.local import Local, Train
from rayfl.config.privacy import ClientDP
from rayfl.config.section import Named, Section

EvalModel = Literal["global", "average", "participants", "all", "ema"]
"""Which model is evaluated, exported and handed to the next phase.

`global`: the model that clients start from. `average`: the mean of the last two global models (FedExP). `participants`:
the mean of what the round's participants returned, weighted as the algorithm weights them (FedDyn). `all`: the mean
over all clients of what each returned last (FedDyn's and FedBug's code plot it); a client that never took part counts
with the phase's first model. `ema`: an exponential moving average of the global models after each round.
"""


@dataclass(frozen=True)
class PhaseSettings:
    """What any part of rayfl may ask of a phase, whether or not its schedule has the key.

    Attributes:
        cohort: Which clients take part; all of them where the schedule has no such key.
        order: Of the cohort.
        eval_model: Which model is evaluated; None for the algorithm's own choice.
        ema_decay: See `ParallelPhase`.
        transforms: See `ParallelPhase`.
        report: See `ParallelPhase`.
        server_training: See `ParallelPhase`.
        dp: Privacy of whole clients.
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
    """Keys that phases of every schedule share; the keys of a schedule of your own derive from it.

    A schedule supports what it has keys for: one with `eval_model` runs the algorithm's rounds on a server, and others
    use its local objective alone; what `transforms`, `report`, `server_training` and `dp` ask for is refused without
    them.

    Attributes:
        schedule: How its rounds run: a registered schedule or `package.module:object`.
        name: Unique in the scenario; the only phase of a scenario may go without, and is called `training`.
        algorithm: A registered algorithm or `package.module:object`, with its options.
        rounds: Number of rounds; 0 leaves the phase out.
        until: The phase's last round, counted over the whole scenario; replaces `rounds`, which `Scenario` derives.
        train: What of the network trains; see `Train`. The rest stays as it is, batch norm's statistics included, and
            is neither sent nor counted as traffic.
        local: How clients train.
        task: What the phase learns, where it is not the scenario's `task`.
        model: Its network, where it is not the scenario's `model`. A phase begins with the weights of the one before:
            with every tensor of its network that the other has under the same name in the same shape. The rest is as
            initialised; the run's output and records say what.
        metrics: What is reported of the phase beside the loss; the first ranks its rounds, and without any the loss. By
            default those of its own `task`, else those of `evaluation`.
        head: `keep` takes the feature layer's weights from the phase before too, `fresh` leaves them as initialised. By
            default they are fresh where the two phases' tasks have different names. It says nothing of the first phase.
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
        """What was set, and defaults for keys that the schedule does not have."""
        known = {field.name: getattr(self, field.name) for field in fields(PhaseSettings) if hasattr(self, field.name)}
        return PhaseSettings(**known)

    @property
    def has_server(self) -> bool:
        """Whether the algorithm's rounds run on a server; without one, only its local objective is used."""
        return "eval_model" in type(self).model_fields

    @property
    def hides_cohort(self) -> bool:
        """Whether who takes part stays hidden."""
        dp = self.settings.dp
        return dp is not None and dp.level == "central"

    @property
    def pool(self) -> Literal["clients", "server"] | None:
        """Whose pooled samples train in place of clients; None where clients train."""
        cohort = self.settings.cohort
        return cohort.pool if isinstance(cohort, Pooled) else None

    @field_validator("algorithm", mode="before")
    @classmethod
    def _options_of_the_default(cls, value: Any) -> Any:
        """`phases.0.algorithm.weighting=uniform` where no algorithm was named."""
        return {"name": "fedavg", **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _rounds_or_until(self) -> BasePhase:
        if ("rounds" in self.model_fields_set) == (self.until is not None):
            raise ValueError("give either rounds, how many, or until, the last round counted through all phases")
        return self
