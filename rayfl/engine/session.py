"""A run under way, on whichever backend."""

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
    """All that a run needs, checked: initial is the model vector, whose first num_params values are trained."""

    scenario: Scenario
    store: ShardStore
    initial: np.ndarray
    num_params: int


class Session(Protocol):
    @property
    def hosts(self) -> Sequence[dict[str, str]]:
        """What each host says of itself."""

    def events(self) -> Iterator[Event]:
        """Runs the scenario to its end."""

    def model(self) -> np.ndarray:
        """The global model's vector, once the events are over."""
