"""A run's input, and the interface through which every backend runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.planning.client_mechanism import ClientPlan
from rayfl.planning.events import Event
from rayfl.planning.headline import Headline, headline_of
from rayfl.planning.phase_plan import Protection
from rayfl.planning.workload import InitialModel, Population, Workload
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
    code: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (before, after), phase in zip(pairwise(self.workloads), self.scenario.phases[1:], strict=True):
            if after is not before:
                try:
                    after.initial.check_takes(before.initial)
                except ScenarioError as error:
                    raise ScenarioError(f"phases.{phase.name}: {error}") from None

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
        return [workload.population for workload in self.workloads]

    @property
    def protection(self) -> Protection:
        """How the run protects samples and clients."""
        return Protection(self.sample_plan.noise, self.client_plan.mechanisms if self.client_plan else ())

    @property
    def headline(self) -> Headline:
        """What ranks the rounds of the run, on validation samples where there are some.

        Raises:
            ScenarioError: As `headline_of`.
        """
        workload = self.result
        metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
        on = "validation" if "validation" in workload.store.held_out else "test"
        return headline_of(workload.evaluation.headline or next(iter(metrics)), metrics, on)

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

    def snapshot(self, store: StateStore) -> RunSnapshot:
        """The state after the last committed round, for `restore` of another session of the same job.

        The scheduler must not be at work: to be called while a `RoundSettled` is handled (`Job.settles`), or after the
        last event.

        Args:
            store: As for `Scheduler.snapshot`.
        """

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Goes on after the round of a snapshot, on any number of hosts; to be called before `events`.

        Args:
            snapshot: Of a session of the same job.
            store: As for `Scheduler.restore`.
        """
