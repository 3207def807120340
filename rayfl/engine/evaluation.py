"""The model on the test examples: cut into slices that do not depend on the number of hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rayfl.config.execution import Evaluation
from rayfl.data.dataset import Shards
from rayfl.data.store import ShardStore
from rayfl.engine.events import ClientScore, Evaluated
from rayfl.engine.turn import Turn
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class Slice:
    """Test rows start..stop; client is the one they belong to, or -1 where nobody asked.

    personalized: scored after local training on this client's own examples.
    """

    start: int
    stop: int
    client: int = -1
    personalized: bool = False


@dataclass(frozen=True)
class Score:
    """Cross-entropy summed over a slice, and how many of its examples were classified correctly."""

    part: Slice
    loss_sum: float
    correct: int


def cut(config: Evaluation, store: ShardStore) -> list[Slice]:
    """The slices of one evaluation, at most `evaluation.batch_size` examples each.

    Raises:
        ScenarioError: scores per client are asked for, but the test examples belong to nobody.
    """
    if not (config.per_client or config.personalize):
        return _pieces(0, len(store.test), config.batch_size)
    if store.test_shards is None:
        key = "personalize" if config.personalize else "per_client"
        raise ScenarioError(
            f"evaluation.{key} needs test examples by client: partition 'natural' has them where the data names its "
            f"clients, and 'shards' ({store.name} here, partitioned otherwise)"
        )
    shards: Shards = store.test_shards
    bounds = [int(bound) for bound in shards.offsets]
    plain = [
        piece
        for client in range(len(shards))
        for piece in _pieces(bounds[client], bounds[client + 1], config.batch_size, client)
    ]
    if not config.personalize:
        return plain
    owners = np.flatnonzero(shards.sizes)
    return plain + [Slice(bounds[client], bounds[client + 1], int(client), personalized=True) for client in owners]


def _pieces(start: int, stop: int, size: int, client: int = -1) -> list[Slice]:
    return [Slice(first, min(first + size, stop), client) for first in range(start, stop, size)]


def summarize(turn: Turn, phase: str, scores: Iterable[Score]) -> Evaluated:
    """All slices' scores as one result; sums are correctly rounded (math.fsum), so their order does not matter."""
    scores = list(scores)
    personalized = {score.part.client: _mean([score])[1] for score in scores if score.part.personalized}
    scores = [score for score in scores if not score.part.personalized]
    loss, accuracy, samples = _mean(scores)
    by_client: dict[int, list[Score]] = {}
    for item in scores:
        if item.part.client >= 0:
            by_client.setdefault(item.part.client, []).append(item)
    clients = []
    for client in sorted(by_client):
        client_loss, client_accuracy, client_samples = _mean(by_client[client])
        clients.append(ClientScore(client, client_samples, client_loss, client_accuracy, personalized.get(client)))
    mean = math.fsum(personalized.values()) / len(personalized) if personalized else None
    return Evaluated(phase, turn.round, loss, accuracy, samples, tuple(clients), mean)


def _mean(scores: Sequence[Score]) -> tuple[float, float, int]:
    samples = sum(item.part.stop - item.part.start for item in scores)
    return (
        math.fsum(item.loss_sum for item in scores) / samples,
        sum(item.correct for item in scores) / samples,
        samples,
    )
