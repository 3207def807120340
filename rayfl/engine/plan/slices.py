"""Draws the test samples of a run, and cuts them into slices for scoring that do not depend on the number of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rayfl.config.execution import Evaluation
from rayfl.data.dataset import Shards
from rayfl.data.held_out import BANK, HeldOut
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import ScenarioError
from rayfl.streams import stream

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


@dataclass(frozen=True)
class Slice:
    """A range of held-out samples to score, or of the bank that metrics compare them with.

    Attributes:
        start: Index of the first sample.
        stop: Index after the last one.
        client: The client that the samples belong to; -1 unless scores per client are requested.
        personalized: Whether to score them after local training on this client's training samples.
        set: Name of the set of samples: `test`, `validation`, `client_test`, an additional test set's name, or `bank`.
    """

    start: int
    stop: int
    client: int = -1
    personalized: bool = False
    set: str = "test"


def draw_test_samples(config: Evaluation, store: ShardStore, seed: int) -> ShardStore:
    """Returns the store with the test samples that all evaluations use.

    If `evaluation.samples` is below their number, samples are drawn without replacement from a separate stream. If
    scores per client are requested, one sample is first drawn from every client that has any, then the rest from all
    remaining samples, so that large clients still weigh more. The samples keep their order.

    Args:
        config: The scenario's [evaluation].
        store: The data with all test samples.
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
    if config.scores_by_client and store.test_shards is not None:
        sizes = store.test_shards.sizes
        owners = np.flatnonzero(sizes)
        if len(owners) > config.samples:
            raise ScenarioError(
                f"evaluation.samples: {config.samples} test samples are too few to score {len(owners)} clients; raise "
                "it, or do without scores per client"
            )
        first = store.test_shards.offsets[owners] + rng.integers(sizes[owners])
    others = np.setdiff1d(np.arange(total), first, assume_unique=True)
    rest = rng.choice(others, config.samples - len(first), replace=False, shuffle=False)
    rows = np.sort(np.concatenate([first, rest]))
    shards = store.test_shards
    if shards is not None:  # they follow the order of the test samples
        shards = Shards(np.arange(len(rows)), np.searchsorted(rows, shards.offsets))
    return replace(store, test=store.test.take(rows), test_shards=shards, test_drawn_from=total)


def draw_bank(config: Evaluation, store: ShardStore, seed: int) -> ShardStore:
    """Returns the store with the bank of training samples that metrics of features read (`evaluation.bank`)."""
    if config.bank is None:
        return store
    total = len(store.train)
    rows = np.sort(stream(seed, "bank").choice(total, min(config.bank, total), replace=False, shuffle=False))
    return replace(store, bank=store.train.take(rows))


def cut(config: Evaluation, store: ShardStore) -> list[Slice]:
    """Cuts all samples of one evaluation into slices: test samples, other held-out samples, and the bank.

    Args:
        config: The scenario's [evaluation].
        store: The data.

    Returns:
        Slices of at most `evaluation.batch_size` samples; a personalized slice holds all of a client's.

    Raises:
        ScenarioError: Scores per client are requested, but no test samples belong to clients; or too many clients are
            to be drawn.
    """
    sets = {"test": HeldOut(store.test, store.test_shards), **store.held_out}
    bank = _pieces(BANK, 0, len(store.bank), config.batch_size) if store.bank else []
    if not config.scores_by_client:
        return bank + [
            piece for name, held in sets.items() for piece in _pieces(name, 0, len(held.samples), config.batch_size)
        ]
    of_clients = _client_set(config, store)
    shards = sets[of_clients].shards
    assert shards is not None
    owners = np.flatnonzero(shards.sizes)
    if config.clients and config.clients >= len(owners):
        raise ScenarioError(
            f"evaluation.clients: must be below {len(owners)}, the number of clients with test samples (got "
            f"{config.clients}); leave it out to evaluate on all of them"
        )
    plain = bank + [piece for name, held in sets.items() for piece in _by_client(name, held, config.batch_size)]
    if not config.personalize:
        return plain
    bounds = [int(bound) for bound in shards.offsets]
    return plain + [
        Slice(bounds[client], bounds[client + 1], int(client), personalized=True, set=of_clients) for client in owners
    ]


def slices_of_round(slices: Sequence[Slice], config: Evaluation, seed: int, index: RoundIndex) -> Sequence[Slice]:
    """The slices for a round's evaluation: all, or those of clients drawn for this round."""
    if config.clients is None:
        return slices
    of_clients = "test" if any(part.set == "test" and part.client >= 0 for part in slices) else "client_test"
    owners = sorted({part.client for part in slices if part.set == of_clients})
    rng = stream(seed, "evaluated clients", index.round)
    drawn = set(rng.choice(owners, config.clients, replace=False, shuffle=False).tolist())
    return [part for part in slices if part.client < 0 or part.client in drawn]


def _client_set(config: Evaluation, store: ShardStore) -> str:
    """Name of the set of test samples that belong to clients."""
    if store.test_shards is not None:
        return "test"
    if "client_test" in store.held_out:
        return "client_test"
    asked = [key for key in ("personalize", "per_client", "clients", "over_clients") if getattr(config, key)]
    key = asked[0] if asked else "client_model"
    raise ScenarioError(
        f"evaluation.{key} needs test samples by client: cut them from the clients' training samples with "
        f"data.test_share, or use partition 'natural' or 'shards' (here {store.name} has another)"
    )


def _by_client(name: str, held: HeldOut, size: int) -> list[Slice]:
    """Cuts a set into slices, each with samples of a single client if samples belong to clients."""
    if held.shards is None:
        return _pieces(name, 0, len(held.samples), size)
    bounds = [int(bound) for bound in held.shards.offsets]
    return [
        piece
        for client in range(len(held.shards))
        for piece in _pieces(name, bounds[client], bounds[client + 1], size, client)
    ]


def _pieces(name: str, start: int, stop: int, size: int, client: int = -1) -> list[Slice]:
    return [Slice(first, min(first + size, stop), client, set=name) for first in range(start, stop, size)]
