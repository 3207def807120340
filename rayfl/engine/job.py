"""A run's input, and the interface through which every backend runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.models.tensor_names import listed
from rayfl.planning.client_mechanism import ClientPlan
from rayfl.planning.device_profiles import DeviceProfiles
from rayfl.planning.events import Event
from rayfl.planning.headline import Headline, comparable_phases, headline_label, headline_of, metrics_key
from rayfl.planning.message import Message
from rayfl.planning.phase_plan import Protection, has_fresh_head
from rayfl.planning.workload import Handover, InitialModel, Population, Workload
from rayfl.privacy.charges import Charges
from rayfl.privacy.samples.planning import SamplePlan
from rayfl.tasks.metrics.building import build_metrics

if TYPE_CHECKING:
    from rayfl.engine.run_snapshot import RunSnapshot
    from rayfl.engine.state_store import StateStore


@dataclass(frozen=True)
class Job:
    """Everything a run needs, already checked.

    Attributes:
        scenario: The resolved scenario.
        workloads: What each phase trains, in order; phases that train the same share the object. A phase takes over
            the weights of the one before it, by name.
        settles: Whether everything about a round is reported before anything of the next one is looked at, as
            callbacks need, so that a round can be made the last one whatever is under way already.
        origin: Where the initial weights came from, and which were taken, for the records; None for random weights.
        sample_plan: The noise that hides samples (`local.dp`), and what it will cost; empty where no phase has it.
        client_plan: How phases hide their clients (`phases.N.dp`); None where none does.
        devices: What clients are simulated on; None without [participation].
        messages: By phase, what its exchanges move for one client; empty without [participation].
        code: Digests of the user's own code behind the scenario, by module.

    Raises:
        ScenarioError: A phase cannot take over the weights of the one before it.
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
                    f"phases.{phase.name}.head: 'fresh' needs a model that says what its head is; name that layer in "
                    "`model` (feature_layer = '...'), derive it from rayfl.models.Network, or leave head out"
                )
        for name, handover in self.handovers.items():
            if not handover.taken:
                raise ScenarioError(
                    f"phases.{name}.model: takes over nothing of the phase before: it has {listed(handover.fresh)}, "
                    f"and the other {listed(handover.not_used)}, none of them alike in name and shape; name modules "
                    "alike that both have, or run the phases as scenarios of their own"
                )

    @property
    def handovers(self) -> dict[str, Handover]:
        """What becomes of weights, by the phases that do not simply go on with all those of the one before."""
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
        """By phase."""
        return [workload.initial for workload in self.workloads]

    @property
    def num_clients(self) -> list[int]:
        """By phase."""
        return [workload.store.num_clients for workload in self.workloads]

    @property
    def populations(self) -> list[Population]:
        """By phase."""
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
        """What ranks the rounds of each phase, on validation samples where there are some.

        Raises:
            ScenarioError: As `headline_of`.
        """
        found = {}
        for phase, workload in zip(self.scenario.phases, self.workloads, strict=True):
            key = metrics_key(phase)
            metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs, key)
            on = "validation" if "validation" in workload.store.held_out else "test"
            label, comparable = headline_label(workload.evaluation), comparable_phases(self.scenario, phase)
            where = "evaluation.headline" if phase.metrics is None else key
            found[phase.name] = headline_of(label, metrics, on, comparable, where)
        return found

    @property
    def headline(self) -> Headline:
        """What ranks the rounds of the run: the last phase's, of rounds that can be compared with those.

        Raises:
            ScenarioError: As `headline_of`.
        """
        return self.headlines[self.scenario.phases[-1].name]

    @property
    def result(self) -> Workload:
        """The workload that the run's result is of: that of the last phase."""
        return self.workloads[-1]


class Session(Protocol):
    """An open run on a backend."""

    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """What each host says of itself."""

    @property
    def dashboard(self) -> str | None:
        """The address of Ray's dashboard, where the session has started one."""

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end, event by event."""

    def committed(self) -> tuple[int, np.ndarray]:
        """The number of the last committed round, 0 before the first, and the vector of the model to evaluate.

        While the events of a round that settles are handled, that is this round.
        """

    def stop(self) -> None:
        """Makes the last committed round the last one; to be called while its `RoundSettled` is handled."""

    def checkpoint_to(self, store: StateStore) -> None:
        """Has a `SnapshotTaken` among the events whenever [checkpoint] asks for one; to be called before `events`.

        Args:
            store: Where hosts and server write their states.
        """

    def charge_to(self, charges: Charges) -> None:
        """Has every round charged before it begins; to be called after `restore` and before `events`."""

    def interrupt(self) -> None:
        """Ends the events after the round under way, with a snapshot of it; may be called by a signal's handler."""

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Goes on after the round of a snapshot, on any number of hosts; to be called before `events`.

        Args:
            snapshot: Of a session of the same job, from a `SnapshotTaken`.
            store: As for `Scheduler.restore`.
        """
