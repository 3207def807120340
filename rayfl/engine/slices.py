"""The test samples of a run, drawn once, and the slices in which they are scored: the same on any number of hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rayfl.config.execution import Evaluation
from rayfl.data.dataset import Shards
from rayfl.errors import ScenarioError
from rayfl.streams import stream

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


@dataclass(frozen=True)
class Slice:
    """A range of test samples.

    Attributes:
        start: Index of the first sample.
        stop: Index after the last one.
        client: The client that the samples belong to; -1 unless scores per client are wanted.
        personalized: Whether to score them after local training on this client's own training samples.
    """

    start: int
    stop: int
    client: int = -1
    personalized: bool = False


def draw_test_samples(config: Evaluation, store: ShardStore, seed: int) -> ShardStore:
    """Returns the store with the test samples that all evaluations use.

    If `evaluation.samples` is below their number, samples are drawn without replacement from a stream of their own. If
    scores per client are wanted, one sample is first drawn from every client that has any, then the rest from all
    remaining samples, so that large clients still weigh more. The samples keep their order.

    Args:
        config: The scenario's [evaluation].
        store: Holds all test samples.
        seed: The data's seed.

    Returns:
        The store, with the drawn samples as its test samples.

    Raises:
        ScenarioError: There are fewer samples to draw than clients to score.
    """
    total = len(store.test)
    if config.samples is None or config.samples >= total:
        return store
    rng = stream(seed, "evaluation")
    first = np.empty(0, np.int64)
    if _wants_clients(config) and store.test_shards is not None:
        sizes = store.test_shards.sizes
        owners = np.flatnonzero(sizes)
        if len(owners) > config.samples:
            raise ScenarioError(
                f"evaluation.samples: {config.samples} test samples cannot score the {len(owners)} clients that have "
                "some; ask for more samples, or do without scores per client"
            )
        first = store.test_shards.offsets[owners] + rng.integers(sizes[owners])
    others = np.setdiff1d(np.arange(total), first, assume_unique=True)
    rest = rng.choice(others, config.samples - len(first), replace=False, shuffle=False)
    rows = np.sort(np.concatenate([first, rest]))
    shards = store.test_shards
    if shards is not None:  # they follow the order of the test samples
        shards = Shards(np.arange(len(rows)), np.searchsorted(rows, shards.offsets))
    return replace(store, test=store.test.take(rows), test_shards=shards, test_drawn_from=total)


def _wants_clients(config: Evaluation) -> bool:
    return config.per_client or config.personalize is not None or config.client_model == "personal"


def cut(config: Evaluation, store: ShardStore) -> list[Slice]:
    """Cuts the test samples into the slices of one evaluation.

    Args:
        config: The scenario's [evaluation].
        store: Holds the test samples.

    Returns:
        Slices of at most `evaluation.batch_size` samples; a personalized slice holds all of a client's.

    Raises:
        ScenarioError: Scores per client are wanted, but the test samples do not belong to clients.
    """
    if not _wants_clients(config):
        return _pieces(0, len(store.test), config.batch_size)
    if store.test_shards is None:
        asked = [key for key in ("personalize", "per_client") if getattr(config, key)]
        key = asked[0] if asked else "client_model"
        raise ScenarioError(
            f"evaluation.{key} needs test samples by client: partition 'natural' has them where the data names its "
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
