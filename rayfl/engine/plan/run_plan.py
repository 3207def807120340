"""The plan of a run: all that it will do, fixed and checked before it starts. Loads no PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rayfl.config.scenario import Scenario
from rayfl.engine.plan.headline import Headline, comparable_phases, headline_of, metrics_key
from rayfl.engine.plan.phase_plan import PhasePlan, has_fresh_head
from rayfl.engine.plan.workload import Handover, InitialModel, Workload, late_constants
from rayfl.errors import ScenarioError
from rayfl.models.tensors import WholeModel, listed
from rayfl.privacy.clients.mechanism import ClientAccounting

if TYPE_CHECKING:
    from rayfl.engine.plan.devices import DeviceProfiles


@dataclass(frozen=True)
class PlannedSpending:
    """What a run with `local.dp` plans to spend of its clients' privacy.

    Attributes:
        epsilons: By name of the phases that protect clients' samples, the largest epsilon of any client at the phase's
            end, including earlier phases; an upper bound if clients may be left out or cohorts are secret, and None if
            no accountant covers the batches.
        notes: Warnings, and reasons why an epsilon is large, one line each.
    """

    epsilons: Mapping[str, float | None] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class TrainedPart:
    """How much of a network a phase trains and sends.

    Attributes:
        num_trained: Number of parameters that it trains.
        num_params: Number of all parameters of the network.
        num_sent: Number of values that a model has as a message, with those of buffers.
    """

    num_trained: int
    num_params: int
    num_sent: int


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run needs, already checked. Server, scheduler and hosts get it whole.

    Attributes:
        scenario: The resolved scenario.
        phases: The plan of each phase, in order.
        workloads: The workload of each phase; phases with the same workload share the object. A phase takes over the
            previous phase's weights by name. Empty without data (`without_data`).
        settles: Whether a round is reported completely before the next one is processed. A callback may need this
            (`Callback.settles`), for instance to make a round the last one even if later ones are under way.
        origin: Source of the initial weights and the names taken from it, for the records; None for random weights.
        spending: What phases with `local.dp` plan to spend.
        accounting: How client-level DP (`phases.N.dp`) is accounted for; None if no phase has it.
        devices: The clients' simulated devices; None without [participation].
        code: Digests of user code that the scenario names, by module.
        worker_code: Those that worker processes import: not those of callbacks, nor `__main__`, whose objects are sent.
        models: The initial models, where the workloads are left out.
        trained: How much of its network each phase trains, by name.

    Raises:
        ScenarioError: A phase cannot take over the previous phase's weights.
    """

    scenario: Scenario
    phases: Sequence[PhasePlan]
    workloads: Sequence[Workload]
    settles: bool = False
    origin: Mapping[str, Any] | None = None
    spending: PlannedSpending = field(default_factory=PlannedSpending)
    accounting: ClientAccounting | None = None
    devices: DeviceProfiles | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    worker_code: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[InitialModel] = ()
    trained: Mapping[str, TrainedPart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for plan, model in zip(self.phases, self.initial_models, strict=True):
            if plan.phase.head == "fresh" and not model.head:
                raise ScenarioError(
                    f"phases.{plan.phase.name}.head: 'fresh' needs a model that declares its head; name that layer in "
                    "`model` (feature_layer = '...'), derive the model from rayfl.models.Network, or leave head out"
                )
        for name, handover in self.handovers.items():
            if not handover.taken:
                raise ScenarioError(
                    f"phases.{name}.model: takes over no weights from the previous phase: its own are "
                    f"{listed(handover.fresh)}, the previous ones {listed(handover.not_used)}, and none match in name "
                    "and shape; give modules that both models share the same names, or run the phases as separate "
                    "scenarios"
                )

    def own_phases(self) -> list[PhasePlan]:
        """The phases with new components, so that host, server and scheduler share none in one process either."""
        phases = [replace(plan) for plan in self.phases]
        for plan in phases:
            plan.build()
        return phases

    def without_data(self) -> RunPlan:
        """The plan for server and scheduler, which read neither data nor tasks of workloads.

        They read constants only to hand them over to a phase that trains them.
        """
        distinct = {id(model): model for model in self.initial_models}
        if len(distinct) == 1:
            distinct = {key: replace(model, constants=model.constants[:0]) for key, model in distinct.items()}
        return replace(self, workloads=(), models=[distinct[id(model)] for model in self.initial_models])

    @cached_property
    def constants(self) -> list[str]:
        """The digest of each phase's constants; empty for one without, or where they are known only in the run."""
        return [
            hashlib.sha256(model.constants.data).hexdigest() if len(model.constants) else ""
            for model in self.initial_models
        ]

    @cached_property
    def late_constants(self) -> Sequence[frozenset[str]]:
        """Names of each phase's constants that are known only when it begins; see `late_constants`."""
        fresh_heads = [has_fresh_head(self.scenario, number) for number in range(len(self.phases))]
        return late_constants(self.initial_models, fresh_heads)

    @property
    def initial_models(self) -> Sequence[InitialModel]:
        """The initial model of each phase."""
        return self.models or [workload.initial for workload in self.workloads]

    @cached_property
    def handovers(self) -> dict[str, Handover]:
        """How weights are taken over, by name of the phases that do not simply continue with all of them."""
        by_phase = {}
        for number, (before, after) in enumerate(pairwise(self.initial_models), start=1):
            fresh_head = has_fresh_head(self.scenario, number)
            if after is not before or fresh_head:
                handover = after.handover(before, fresh_head)
                if handover.fresh or handover.not_used:
                    by_phase[self.scenario.phases[number].name] = handover
        return by_phase

    def taken_over(self, model: WholeModel, before: int, phase: int) -> WholeModel:
        """Passes a model from phase to phase; see `InitialModel.take`.

        Args:
            model: The earlier phase's model.
            before: The earlier phase.
            phase: The phase that begins with the model.

        Returns:
            Its model, with constants if some are `late_constants`.
        """
        for number in range(before + 1, phase + 1):
            own, others = self.initial_models[number], self.initial_models[number - 1]
            fresh_head = has_fresh_head(self.scenario, number)
            if own is not others or fresh_head:
                taken = model.vector, others, fresh_head, model.constants
                constants = own.take_constants(*taken) if self.late_constants[number] else None
                model = WholeModel(own.take(*taken), own.take_discrete(model.discrete, fresh_head), constants)
        return model

    @cached_property
    def headlines(self) -> dict[str, Headline]:
        """The metric that ranks the rounds of each phase, on validation samples if there are any.

        Raises:
            ScenarioError: As `headline_of`.
        """
        from rayfl.tasks.metrics.construction import build_metrics  # loads PyTorch

        by_phase = {}
        for phase, workload in zip(self.scenario.phases, self.workloads, strict=True):
            key = metrics_key(phase)
            metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs, key)
            on = "validation" if "validation" in workload.store.held_out else "test"
            comparable = comparable_phases(self.scenario, phase)
            by_phase[phase.name] = headline_of(workload.evaluation, metrics, on, comparable, key)
        return by_phase

    @property
    def headline(self) -> Headline:
        """The metric that ranks the rounds of the run: the last phase's, for all rounds comparable with that phase.

        Raises:
            ScenarioError: As `headline_of`.
        """
        return self.headlines[self.scenario.phases[-1].name]

    @property
    def result(self) -> Workload:
        """The workload of the last phase, whose model is the run's result."""
        return self.workloads[-1]
