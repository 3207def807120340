"""The input of a run, and the interface of an open run on any backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from rayfl.config.scenario import Scenario
from rayfl.engine.events import Event
from rayfl.engine.plan.devices import DeviceProfiles
from rayfl.engine.plan.headline import Headline, comparable_phases, headline_of, metrics_key
from rayfl.engine.plan.phase_plan import Protection, has_fresh_head
from rayfl.engine.plan.sample_privacy import SamplePlan
from rayfl.engine.plan.workload import Handover, InitialModel, Population, Workload
from rayfl.engine.totals import Message
from rayfl.errors import ScenarioError
from rayfl.models.tensors import SentModel, listed
from rayfl.privacy.clients.mechanism import ClientPlan
from rayfl.privacy.release_ledger import Charges
from rayfl.tasks.metrics.construction import build_metrics

if TYPE_CHECKING:
    from rayfl.engine.state.snapshots import RunSnapshot
    from rayfl.engine.state.state_store import StateStore


@dataclass(frozen=True)
class Job:
    """Everything that a run needs, already checked.

    Attributes:
        scenario: The resolved scenario.
        workloads: The workload of each phase, in order; phases with the same workload share the object. A phase takes
            over the previous phase's weights by name.
        settles: Whether a round is reported completely before the next one is processed. Callbacks need this to make a
            round the last one even if later ones are under way.
        origin: Source of the initial weights and the names taken from it, for the records; None for random weights.
        sample_plan: The noise of example-level DP (`local.dp`) and its cost; empty if no phase has it.
        client_plan: The mechanisms of client-level DP (`phases.N.dp`); None if no phase has it.
        devices: The clients' simulated devices; None without [participation].
        messages: By phase, the sizes of the messages to and from one client; empty without [participation].
        code: Digests of user code that the scenario names, by module.

    Raises:
        ScenarioError: A phase cannot take over the previous phase's weights.
    """

    scenario: Scenario
    workloads: Sequence[Workload]
    settles: bool = False
    origin: Mapping[str, Any] | None = None
    sample_plan: SamplePlan = field(default_factory=SamplePlan)
    client_plan: ClientPlan | None = None
    devices: DeviceProfiles | None = None
    messages: Sequence[Sequence[Message]] = ()
    code: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for phase, workload in zip(self.scenario.phases, self.workloads, strict=True):
            if phase.head == "fresh" and not workload.initial.head:
                raise ScenarioError(
                    f"phases.{phase.name}.head: 'fresh' needs a model that declares its head; name that layer in "
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

    @property
    def handovers(self) -> dict[str, Handover]:
        """How weights are taken over, by name of the phases that do not simply continue with all of them."""
        found = {}
        for number, (before, after) in enumerate(pairwise(self.workloads), start=1):
            fresh_head = has_fresh_head(self.scenario, number)
            if after is not before or fresh_head:
                handover = after.initial.handover(before.initial, fresh_head)
                if handover.fresh or handover.not_used:
                    found[self.scenario.phases[number].name] = handover
        return found

    @property
    def initial_models(self) -> list[InitialModel]:
        """The initial model of each phase."""
        return [workload.initial for workload in self.workloads]

    @property
    def num_clients(self) -> list[int]:
        """The number of clients of each phase."""
        return [workload.store.num_clients for workload in self.workloads]

    @property
    def populations(self) -> list[Population]:
        """The clients of each phase."""
        populations = [workload.population for workload in self.workloads]
        noise = self.sample_plan.noise or [None] * len(populations)
        messages = self.messages or [()] * len(populations)
        return [
            replace(population, devices=self.devices, messages=sent, noise=of_phase)
            for population, sent, of_phase in zip(populations, messages, noise, strict=True)
        ]

    @property
    def protection(self) -> Protection:
        """How the run protects samples and clients."""
        return Protection(self.sample_plan.noise, self.client_plan.mechanisms if self.client_plan else ())

    @property
    def headlines(self) -> dict[str, Headline]:
        """The metric that ranks the rounds of each phase, on validation samples if there are any.

        Raises:
            ScenarioError: As `headline_of`.
        """
        found = {}
        for phase, workload in zip(self.scenario.phases, self.workloads, strict=True):
            key = metrics_key(phase)
            metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs, key)
            on = "validation" if "validation" in workload.store.held_out else "test"
            comparable = comparable_phases(self.scenario, phase)
            found[phase.name] = headline_of(workload.evaluation, metrics, on, comparable, key)
        return found

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


class Session(Protocol):
    """An open run on a backend."""

    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """Description of each host."""

    @property
    def dashboard(self) -> str | None:
        """The address of Ray's dashboard, if the session has started one."""

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end, and yields its events."""

    def committed(self) -> tuple[int, SentModel]:
        """The number of the last committed round, 0 before the first, and its model to evaluate.

        If rounds settle (`Job.settles`), this is the round whose events are being handled.
        """

    def end_of_phase(self, round: int) -> SentModel | None:
        """The model to evaluate after the last round of a phase; call it while handling that round's `RoundDone`.

        None if the model was lost with the server, which continued after a later round.
        """

    def stop(self) -> None:
        """Ends the run after the last committed round; call it while handling the round's `RoundSettled`."""

    def checkpoint_to(self, store: StateStore) -> None:
        """Adds a `SnapshotTaken` to the events whenever [checkpoint] asks for one; call it before `events`.

        Args:
            store: Where hosts and server write their states.
        """

    def charge_to(self, charges: Charges) -> None:
        """Charges every round before it begins; call it after `restore` and before `events`."""

    def interrupt(self) -> None:
        """Ends the run after the current round, with a snapshot of it; signal handlers may call it."""

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Continues after the round of a snapshot, on any number of hosts; call it before `events`.

        Args:
            snapshot: From a `SnapshotTaken` of a session of the same job.
            store: As for `Scheduler.restore`.
        """
