"""Cohort samplers: classes that choose which clients take part in a round, and their order in a relay.

PowerOfChoice: Cho, Wang and Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
Selection Strategies", 2020, its variant rpow-d.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import PositiveInt

from rayfl.config.component import Component
from rayfl.config.registry import Registry
from rayfl.errors import ScenarioError

samplers = Registry(
    "sampler",
    {
        "power_of_choice": "rayfl.algorithms.sampler:PowerOfChoice",
        "largest_first": "rayfl.algorithms.sampler:LargestFirst",
        "by_label": "rayfl.algorithms.sampler:ByLabel",
        "highest_loss_first": "rayfl.algorithms.sampler:HighestLossFirst",
    },
)


@dataclass(frozen=True)
class SamplingContext:
    """A round that is about to begin, as a sampler sees it; `CohortSampler.draw` receives it.

    Attributes:
        round: Position within the whole scenario, from 1.
        round_in_phase: Position within the phase, from 1.
        sizes: int64 [clients], the number of training samples of each client; the index is the client's number.
        stream: The round's own random generator.
        scalars: By client, the last value of everything it reported in earlier rounds of this phase: `train_loss`, the
            mean loss of its steps in its last round, and what it passed to `ClientContext.report`. Clients that have
            not taken part are missing. Empty unless the sampler sets `reads_scalars`.
        state: What the sampler stored here in earlier rounds of this phase: numbers, text, and lists and tables of
            these. You may change it.
        labels: int64 [clients], the most frequent class among each client's training samples, the lowest of several.
            None unless the sampler sets `reads_labels`.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import SamplingContext
        >>> sizes, stream = np.array([5, 9]), np.random.default_rng(0)
        >>> context = SamplingContext(round=1, round_in_phase=1, sizes=sizes, stream=stream)
        >>> context.scalars, context.state
        ({}, {})
    """

    round: int
    round_in_phase: int
    sizes: np.ndarray
    stream: np.random.Generator
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    labels: np.ndarray | None = None


class CohortSampler(Component, ABC):
    """Draws the clients of every round; derive from it to write your own.

    Its fields are its options, the other keys of `cohort = { sampler = ... }`.

    Attributes:
        reads_scalars: Whether it reads `SamplingContext.scalars`. Each round is then drawn only after all earlier
            rounds have finished, so that what the sampler sees does not depend on timing and results stay bitwise
            reproducible; on Ray, rounds then cannot overlap.
        reads_labels: Whether it reads `SamplingContext.labels`; data without classes is then refused.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import CohortSampler, SamplingContext
        >>> class LargestClients(CohortSampler):
        ...     clients: int = 10
        ...
        ...     def draw(self, context):
        ...         return np.argsort(-context.sizes, kind="stable")[: self.clients].tolist()
        >>> sizes, stream = np.array([5, 9, 7]), np.random.default_rng(0)
        >>> LargestClients(clients=2).draw(SamplingContext(1, 1, sizes, stream))
        [1, 2]
    """

    reads_scalars: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False

    @abstractmethod
    def draw(self, context: SamplingContext) -> Sequence[int]:
        """Draws the clients of a round.

        Args:
            context: The round.

        Returns:
            Numbers of distinct clients, at least one; a relay trains them in this order.
        """

    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        """Returns the sizes of the smallest and the largest cohort it can draw, which some aggregations need.

        Args:
            num_clients: Number of all clients.

        Raises:
            ScenarioError: Its options do not fit this number of clients.
        """
        return 1, num_clients


class PowerOfChoice(CohortSampler):
    """Draws d candidates in proportion to their sizes, without replacement; the m with the highest losses take part.

    A candidate's loss is the mean over its local steps when it last took part; a client that has never been chosen
    counts as having infinite loss. One that was chosen and has never answered, since it was not available or dropped
    out, counts as having the mean loss of the candidates that have, and comes after them in a tie, so that silent
    clients cannot occupy a round. Other ties go to those drawn first. (The paper's pow-d instead asks every candidate
    for its loss at the current model, which costs a message and a pass over its data.)

    Attributes:
        clients: m, the size of the cohort.
        candidates: d, from m to the number of clients; d = m is sampling by size.
    """

    reads_scalars = True

    name: str = "power_of_choice"
    clients: PositiveInt
    candidates: PositiveInt

    def draw(self, context: SamplingContext) -> Sequence[int]:
        shares = context.sizes / context.sizes.sum()
        drawn = context.stream.choice(len(shares), self.candidates, replace=False, p=shares)
        silent = {client for client in context.state.get("silent", []) if client not in context.scalars}
        known = [loss for loss in (_last_loss(context, int(client)) for client in drawn) if loss < math.inf]
        usual = math.fsum(known) / len(known) if known else math.inf

        def order(client: int) -> tuple[float, bool]:
            return (usual, False) if client in silent else (_last_loss(context, client), True)

        chosen = sorted(map(int, drawn), key=order, reverse=True)[: self.clients]
        context.state["silent"] = sorted(silent.union(chosen).difference(context.scalars))
        return chosen

    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        if not self.clients <= self.candidates <= num_clients:
            raise ScenarioError(
                f"'power_of_choice' needs clients <= candidates <= {num_clients}, the number of clients, but has "
                f"clients = {self.clients} and candidates = {self.candidates}"
            )
        return self.clients, self.clients


def _last_loss(context: SamplingContext, client: int) -> float:
    """The mean loss of a client's steps in its last round; infinite before its first."""
    return context.scalars.get(client, {}).get("train_loss", math.inf)


class Ordered(CohortSampler, ABC):
    """Draws the same clients as a plain number of them does, and puts them in an order, which a relay follows.

    Clients that are equal in it stay as drawn.

    Attributes:
        clients: The size of the cohort.
        reverse: Whether to reverse the order.
    """

    clients: PositiveInt
    reverse: bool = False

    def draw(self, context: SamplingContext) -> Sequence[int]:
        drawn = context.stream.choice(len(context.sizes), self.clients, replace=False)
        return sorted((int(client) for client in drawn), key=partial(self.key, context), reverse=self.reverse)

    @abstractmethod
    def key(self, context: SamplingContext, client: int) -> float:
        """What the clients of a round are sorted by, lowest first."""

    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        if self.clients > num_clients:
            raise ScenarioError(f"{self.clients} clients per round, but there are {num_clients}")
        return self.clients, self.clients


class LargestFirst(Ordered):
    """Draws clients at random; those with the most training samples come first."""

    name: str = "largest_first"

    def key(self, context: SamplingContext, client: int) -> float:
        return -float(context.sizes[client])


class ByLabel(Ordered):
    """Draws clients at random, in the order of their most frequent class: a relay meets one class after the other."""

    reads_labels = True

    name: str = "by_label"

    def key(self, context: SamplingContext, client: int) -> float:
        assert context.labels is not None
        return float(context.labels[client])


class HighestLossFirst(Ordered):
    """Draws clients at random; those with the highest loss in their last round come first, and new ones before them."""

    reads_scalars = True

    name: str = "highest_loss_first"

    def key(self, context: SamplingContext, client: int) -> float:
        return -_last_loss(context, client)
