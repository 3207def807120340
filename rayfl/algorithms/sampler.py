"""Cohort samplers: classes that say which clients take part in a round (`cohort = { sampler = ... }`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rayfl.component import Component
from rayfl.registry import Registry

samplers = Registry("sampler", {"power_of_choice": "rayfl.algorithms.power_of_choice:PowerOfChoice"})


@dataclass(frozen=True)
class SamplingContext:
    """A round that has yet to begin, as a sampler sees it.

    Attributes:
        round: Number within the whole scenario, from 1.
        round_in_phase: Number within the phase, from 1.
        sizes: int64 [clients], training samples of each client, which is known by its place here.
        stream: The round's own random generator.
        scalars: By client, the last value of everything that it reported in the earlier rounds of this phase:
            `train_loss`, the mean loss of its steps in its last round, and what it reported by `ClientContext.report`.
            A client that has not taken part is missing. Empty unless the sampler says `reads_scalars`.
        state: What the sampler left here in the earlier rounds of this phase: numbers, text, and lists and tables of
            such. Change it as you like.
    """

    round: int
    round_in_phase: int
    sizes: np.ndarray
    stream: np.random.Generator
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


class CohortSampler(Component, ABC):
    """Draws the clients of every round. Its fields are its options, the other keys of `cohort = { sampler = ... }`.

    Attributes:
        reads_scalars: Whether it reads `SamplingContext.scalars`. A round is then drawn only when all those before it
            are over, so that what it sees, and with it the bits, does not depend on timing; on Ray this costs the time
            in which rounds would otherwise overlap.
    """

    reads_scalars: ClassVar[bool] = False

    @abstractmethod
    def draw(self, context: SamplingContext) -> Sequence[int]:
        """Draws a round's clients.

        Args:
            context: The round.

        Returns:
            Numbers of distinct clients, at least one; a relay trains them in this order.
        """

    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        """The smallest and the largest cohort that it can draw, which some aggregations need to know.

        Raises:
            ScenarioError: Its options do not fit so many clients.
        """
        return 1, num_clients
