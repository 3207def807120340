"""Draws the test samples of a run, and cuts them into slices for scoring that do not depend on the number of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

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


@dataclass(frozen=True, eq=False)
class Slices(Sequence[Slice]):
    """Slices in arrays, 22 bytes for each, rather than one object per slice.

    Attributes:
        start: [n] int64; this and the others as for `Slice`.
        stop: [n] int64.
        client: [n] int32; the slices of one set are in the order of clients.
        personalized: [n] bool.
        set: [n] uint8, indices of `sets`.
        sets: The names of the sets.
    """

    start: np.ndarray
    stop: np.ndarray
    client: np.ndarray
    personalized: np.ndarray
    set: np.ndarray
    sets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, places: int) -> Slice: ...

    @overload
    def __getitem__(self, places: slice | np.ndarray) -> Slices: ...

    def __getitem__(self, places: int | slice | np.ndarray) -> Slice | Slices:
        """One slice, or several as arrays; an array of booleans selects those to keep."""
        start, stop, client, personalized, number = (column[places] for column in self._columns)
        if isinstance(places, slice | np.ndarray):
            return Slices(start, stop, client, personalized, number, self.sets)
        return Slice(int(start), int(stop), int(client), bool(personalized), self.sets[number])

    def in_blocks(self, hosts: int) -> np.ndarray:
        """[n] int64: the host of each slice, if all get equally many of every set, and consecutive ones."""
        host = np.empty(len(self), np.int64)
        kind = 2 * self.set.astype(np.int64) + self.personalized
        for one in np.unique(kind):
            places = np.flatnonzero(kind == one)
            host[places] = np.arange(len(places)) * hosts // len(places)
        return host

    @property
    def _columns(self) -> tuple[np.ndarray, ...]:
        return self.start, self.stop, self.client, self.personalized, self.set

    @staticmethod
    def of(slices: Iterable[Slice]) -> Slices:
        """The same slices, in arrays."""
        listed = list(slices)
        sets = tuple(dict.fromkeys(part.set for part in listed))
        return Slices(
            np.array([part.start for part in listed], np.int64),
            np.array([part.stop for part in listed], np.int64),
            np.array([part.client for part in listed], np.int32),
            np.array([part.personalized for part in listed], bool),
            np.array([sets.index(part.set) for part in listed], np.uint8),
            sets,
        )

    @staticmethod
    def joined(parts: Sequence[Slices]) -> Slices:
        """One after the other; all must name the same sets."""
        columns = zip(*(part._columns for part in parts), strict=True)
        start, stop, client, personalized, number = map(np.concatenate, columns)
        return Slices(start, stop, client, personalized, number, parts[0].sets)


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
    return replace(store, test=store.test.select(rows), test_shards=shards, test_drawn_from=total)


def draw_bank(config: Evaluation, store: ShardStore, seed: int) -> ShardStore:
    """Returns the store with the bank of training samples that metrics of features read (`evaluation.bank`)."""
    if config.bank is None:
        return store
    total = len(store.train)
    rows = np.sort(stream(seed, "bank").choice(total, min(config.bank, total), replace=False, shuffle=False))
    return replace(store, bank=store.train.select(rows))


def cut(config: Evaluation, store: ShardStore) -> Slices:
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
    held_out = ({BANK: HeldOut(store.bank)} if store.bank else {}) | sets
    if not config.scores_by_client:
        held_out = {name: HeldOut(held.samples) for name, held in held_out.items()}
        return _pieces(held_out, config.batch_size)
    of_clients = _client_set(config, store)
    shards = sets[of_clients].shards
    assert shards is not None
    owners = np.flatnonzero(shards.sizes)
    if config.clients and config.clients >= len(owners):
        raise ScenarioError(
            f"evaluation.clients: must be below {len(owners)}, the number of clients with test samples (got "
            f"{config.clients}); leave it out to evaluate on all of them"
        )
    plain = _pieces(held_out, config.batch_size)
    if not config.personalize:
        return plain
    starts, stops, number = shards.offsets[owners], shards.offsets[owners + 1], plain.sets.index(of_clients)
    return Slices.joined([plain, _same(starts, stops, owners, number, plain.sets, personalized=True)])


def slices_of_round(slices: Slices, config: Evaluation, seed: int, index: RoundIndex) -> Slices:
    """The slices for a round's evaluation: all, or those of clients drawn for this round."""
    if config.clients is None:
        return slices
    owned = ~slices.personalized & (slices.client >= 0)
    tested = owned & (slices.set == slices.sets.index("test"))
    if not tested.any():
        tested = owned & (slices.set == slices.sets.index("client_test"))
    clients = slices.client[tested]
    owners = clients[np.flatnonzero(np.diff(clients, prepend=-1))]
    rng = stream(seed, "evaluated clients", index.round)
    kept = np.zeros(int(slices.client.max()) + 2, bool)
    kept[rng.choice(owners, config.clients, replace=False, shuffle=False)] = True
    kept[-1] = True  # of samples without owner, whose client is -1
    places: np.ndarray = kept[slices.client]
    return slices[places]


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


def _pieces(sets: Mapping[str, HeldOut], size: int) -> Slices:
    """Cuts sets into slices, each with samples of a single client if samples belong to clients."""
    names, parts = tuple(sets), []
    for number, held in enumerate(sets.values()):
        offsets = np.array([0, len(held.samples)]) if held.shards is None else held.shards.offsets
        pieces = -(-np.diff(offsets) // size)
        owners = np.repeat(np.arange(len(pieces), dtype=np.int32), pieces)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = offsets[owners] + places * size
        stops = np.minimum(starts + size, offsets[owners + 1])
        clients = np.full_like(owners, -1) if held.shards is None else owners
        parts.append(_same(starts, stops, clients, number, names))
    return Slices.joined(parts)


def _same(
    starts: np.ndarray,
    stops: np.ndarray,
    clients: np.ndarray,
    number: int,
    sets: tuple[str, ...],
    personalized: bool = False,
) -> Slices:
    """Slices of the same set."""
    trained, of_set = np.full(len(starts), personalized), np.full(len(starts), number, np.uint8)
    return Slices(starts, stops, clients.astype(np.int32, copy=False), trained, of_set, sets)
