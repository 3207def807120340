"""The interface of a schedule: submit a round to the hosts, and say what to wait for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call
from rayfl.planning.events import Event
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex


@dataclass(frozen=True)
class SubmittedRound:
    """A round under way.

    Attributes:
        index: Which round.
        assignments: (host, clients) of all client updates.
        reports: Calls that return an `UpdateReport` each.
        server_calls: Calls that return the scalars that the round reported on the server.
        model: Reference to the model to evaluate.
        evaluators: The hosts that are free to evaluate it.
    """

    index: RoundIndex
    assignments: Sequence[tuple[int, Sequence[int]]]
    reports: Sequence[Call]
    model: Ref
    evaluators: Sequence[int]
    server_calls: Sequence[Call] = field(default_factory=tuple)


class Schedule(ABC):
    """Runs the rounds of one phase.

    Args:
        plan: The phase.
        scenario: What runs.
        backend: Hosts and server.
        sizes: [clients] training samples of each client.
    """

    def __init__(self, plan: PhasePlan, scenario: Scenario, backend: Backend, sizes: np.ndarray) -> None:
        self.plan, self.scenario, self.backend, self.sizes = plan, scenario, backend, sizes

    def waits_for(self, cohort: Sequence[int]) -> bool:
        """Whether submitting a round of this cohort has to wait for earlier client updates."""
        return False

    @abstractmethod
    def submit(self, index: RoundIndex, cohort: Sequence[int]) -> Generator[Event, None, SubmittedRound]:
        """Submits a whole round.

        Args:
            index: Position of the round within the scenario.
            cohort: The clients that take part, in the order drawn.

        Yields:
            Events, only if it has to wait.

        Returns:
            The round, under way.
        """
