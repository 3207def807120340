"""A run's input, and the interface through which every backend runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.engine.events import Event


@dataclass(frozen=True)
class Job:
    """Everything a run needs, already checked.

    Attributes:
        scenario: The resolved scenario.
        store: The data, partitioned.
        initial: float32 [length of the model], the initial model: parameters, then buffers.
        num_params: Length of its parameters' part.
    """

    scenario: Scenario
    store: ShardStore
    initial: np.ndarray
    num_params: int


class Session(Protocol):
    """An open run on a backend."""

    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """What each host says of itself."""

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end, event by event."""

    def committed(self) -> tuple[int, np.ndarray]:
        """The number of the last committed round, 0 before the first, and the vector of the model to evaluate."""
