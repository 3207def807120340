"""The server: holds the global model and the algorithm's state, and aggregates. It works on vectors only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rayfl.algorithms.exchange import Exchange
from rayfl.algorithms.server_state import ServerState
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.reduction import HostAnswers
from rayfl.engine.server_round import ServerRound
from rayfl.engine.state.state_store import SnapshotWriter, StateStore, Stored, StoredConstants
from rayfl.models.tensors import (
    Discrete,
    SentModel,
    WholeModel,
    constants_of,
    copied,
    for_storage,
    joined,
    split,
    taken_from,
)

BEFORE = RoundIndex(0, 0, 0)
"""Position before the first round."""


@dataclass(frozen=True)
class StoredServerState:
    """The server's state after a round in a snapshot.

    Attributes:
        index: The round.
        stored: Arrays in the store: `model`; `eval_model`, unless it is the global model; integer and boolean buffers
            as `discrete/name`; and algorithm state as `state/name`.
        constants: The phase's constants in the store, if they are known only since it began.
    """

    index: RoundIndex
    stored: Stored
    constants: Stored | None = None


@dataclass(frozen=True)
class StoredModel:
    """A model to evaluate in a snapshot; attributes as for `StoredServerState`."""

    stored: Stored
    constants: Stored | None = None


@dataclass(frozen=True)
class ServerSnapshot:
    """The server after a committed round, as plain data.

    Attributes:
        latest: The state after the round.
        open: Initial states of rounds whose exchange clients still answer, by round.
        models: Models that have not been evaluated yet, in order.
    """

    latest: StoredServerState
    open: dict[int, StoredServerState]
    models: Sequence[StoredModel] = ()

    @property
    def states(self) -> list[Stored]:
        """All that it names in the store."""
        entries: list[StoredServerState | StoredModel] = [self.latest, *self.open.values(), *self.models]
        named = [stored for one in entries for stored in (one.stored, one.constants)]
        return [stored for stored in named if stored is not None]


class Server:
    """Runs the rounds of the phases' algorithms, exchange by exchange.

    A round works on a copy of the latest state, which replaces the kept state when the round is committed. Rounds may
    begin before earlier ones are committed, and several may be open at once.

    Args:
        run: The run's plan. All phases but the first take over weights from the previous phase's result where they
            match (`InitialModel.take`).
        share: Puts the constants of a phase where hosts can read them; returns them as an equal array.
    """

    def __init__(self, run: RunPlan, share: Callable[[np.ndarray], np.ndarray] = lambda constants: constants) -> None:
        self._run, self._plans, self._models = run, run.own_phases(), run.initial_models
        first, clients = self._models[0], self._plans[0].num_clients
        state = ServerState(
            np.array(first.vector), first.num_params, clients, layout=first.layout, discrete=first.discrete
        )
        self._kept = (BEFORE, state)
        self._waiting: dict[int, tuple[RoundIndex, ServerState]] = {}
        self._rounds: dict[int, ServerRound] = {}
        self._began_from: dict[int, tuple[RoundIndex, ServerState]] = {}
        self._ends: dict[int, SentModel] = {}
        self._share, self._constants = share, StoredConstants(share)
        self._begun: tuple[tuple[int, int], np.ndarray] | None = None
        self._writer: SnapshotWriter[ServerSnapshot] = SnapshotWriter()

    def begin(self, round_index: RoundIndex, cohort: Sequence[int], last: tuple[int, int] | None = None) -> Exchange:
        """Starts a round of exchanges; starting an open round again begins from the same state.

        Args:
            round_index: Position of the round within the scenario.
            cohort: The clients that take part, in the order drawn.
            last: See `ServerRound`.

        Returns:
            The round's first exchange.

        Raises:
            RayflError: The algorithm raised, or yielded no exchange.
        """
        origin = self._began_from.setdefault(round_index.round, self._latest())
        state = self._staged(round_index, *origin)
        opened = ServerRound(self._run.scenario, self._plans[round_index.phase], round_index, state, last)
        self._rounds[round_index.round] = opened
        return opened.begin(cohort)

    def receive(
        self, round_index: RoundIndex, discounts: Sequence[float] | None, *parts: HostAnswers
    ) -> tuple[Mapping[str, float], Exchange | None]:
        """Passes the hosts' answers to a round.

        Args:
            round_index: The round, which is open.
            discounts: Factors for the values, but not the weights, of each part's answers; None for 1.
            parts: The answers to the round's latest exchange, one part per host; or, in an asynchronous schedule, the
                answers to exchanges of several rounds.

        Returns:
            The scalars that the round has reported so far, and its next exchange; None at its end.

        Raises:
            RayflError: The answers do not match each other or the model, or the algorithm raised.
            DivergenceError: The server's step left values that are not finite.
        """
        return self._received(round_index, parts, discounts)

    def mix(self, round_index: RoundIndex, began: int, share: float, part: HostAnswers) -> Mapping[str, float]:
        """Mixes a client's model into the server's: w <- w + step(share (w_i - w)).

        Args:
            round_index: The round, which is open, and whose algorithm has a single exchange.
            began: Number of the round in which the client began.
            share: a in w <- (1 - a) w + a w_i, to which this reduces if the server applies the change as it is.
            part: The client's answer, whose `delta` is the change from the model that it began from.

        Returns:
            The scalars that the round has reported.

        Raises:
            RayflError: As `receive`.
            DivergenceError: As `receive`.
        """
        base = self._staged(round_index, *self._began_from[began]).model
        scalars, _ = self._received(round_index, [part], [share], base)
        return scalars

    def _received(
        self,
        round_index: RoundIndex,
        parts: Sequence[HostAnswers],
        discounts: Sequence[float] | None,
        base: np.ndarray | None = None,
    ) -> tuple[Mapping[str, float], Exchange | None]:
        opened = self._rounds[round_index.round]
        following = opened.receive(parts, discounts, base)
        if following is None:
            self._waiting[round_index.round] = (opened.index, opened.state)
            del self._rounds[round_index.round]
        return dict(opened.state.scalars), following

    def adopt(self, round_index: RoundIndex, weights: Sequence[float], *models: SentModel) -> None:
        """Makes the weighted mean of the models at the ends of relays the global model, once the round is committed.

        Args:
            round_index: The round.
            weights: The models' weights, with a sum above 0.
            models: The models; most relays end with a single one. Integer and boolean buffers are those of the model
                with the largest weight.
        """
        state = self._staged(round_index, *self._latest())
        vectors, discrete = zip(*map(split, models), strict=True)
        state.model, state.eval_model = weighted_mean(weights, vectors), None
        state.discrete = copied(discrete[int(np.argmax(weights))])
        self._waiting[round_index.round] = (round_index, state)

    def keep(self, round_index: RoundIndex) -> None:
        """Ends a round without participants, which changes nothing."""
        self._waiting[round_index.round] = (round_index, self._staged(round_index, *self._latest()))

    def commit(self, round_index: RoundIndex, open_rounds: Collection[int] = ()) -> None:
        """Keeps the state that the round left, once it is over.

        Args:
            round_index: The round.
            open_rounds: Numbers of rounds, up to this one, whose exchange clients still answer.
        """
        (before, state), self._kept = self._kept, self._waiting.pop(round_index.round)
        if before.phase != round_index.phase:
            self._ends[before.round] = _evaluated(state)
        for held in (self._rounds, self._began_from):
            for number in [number for number in held if number <= round_index.round and number not in open_rounds]:
                del held[number]

    def committed(self, last: int | None = None) -> tuple[int, SentModel]:
        """Returns the number of the last committed round and its model to evaluate.

        If clients keep no state, a round is over as soon as the server has its model.

        Args:
            last: If rounds settle (`RoundSettled`), the last one that was reported as done. The server may already
                have the model of a later one, or may not have received the commit of this one yet.
        """
        if last is not None:
            is_committed = last <= self._kept[0].round or last not in self._waiting
            index, state = self._kept if is_committed else self._waiting[last]
            return index.round, _evaluated(state)
        latest = self._latest()
        index, state = self._kept if self._plans[latest[0].phase].keeps_client_state else latest
        return index.round, _evaluated(state)

    def end_of_phase(self, round: int) -> SentModel | None:
        """Returns the model to evaluate after the last round of a phase.

        Rounds of later phases may be committed meanwhile. None if the server was restored after one of them.
        """
        if round == self._kept[0].round or round in self._waiting:
            return _evaluated(self._state_after(round))
        return self._ends.get(round)

    def model_after(self, round_index: RoundIndex) -> SentModel:
        """Returns the model to evaluate after a round, committed or not."""
        return _evaluated(self._state_after(round_index.round))

    def model_for(self, phase: int) -> SentModel:
        """Returns the model that a phase starts from after the latest round."""
        taken = self._taken_over(*self._latest(), phase)
        return joined(taken.vector, taken.discrete, taken.constants)

    def snapshot(self, round_index: RoundIndex, store: StateStore, *models: SentModel) -> None:
        """Starts writing the state after the last committed round to a store.

        Args:
            round_index: The last committed round.
            store: The store.
            models: Models that have not been evaluated yet.
        """
        entry = self._kept  # later rounds replace states and never modify them
        began = {number: origin for number, origin in self._began_from.items() if number <= entry[0].round}
        assert entry[0] == round_index

        def write() -> ServerSnapshot:
            latest = self._stored(store, *entry)
            open = {number: self._stored(store, *origin) for number, origin in began.items()}
            kept = self._constants
            return ServerSnapshot(
                latest,
                open,
                [
                    StoredModel(store.write(_arrays(*split(model))), kept.write(store, constants_of(model)))
                    for model in models
                ],
            )

        self._writer.begin(round_index.round, write)

    def written(self, round_index: RoundIndex, wait: bool) -> ServerSnapshot | None:
        """Returns the manifest of a snapshot's states; see `Host.written`."""
        return self._writer.written(round_index.round, wait)

    def restore(self, snapshot: ServerSnapshot, store: StateStore) -> None:
        """Continues after the round of a snapshot."""
        self._kept, self._waiting, self._rounds = self._read(snapshot.latest, store), {}, {}
        self._began_from = {number: self._read(origin, store) for number, origin in snapshot.open.items()}

    def stored_model(self, store: StateStore, stored: StoredModel) -> SentModel:
        """Reads a model to evaluate."""
        return stored_model(store, stored, self._constants)

    def _read(self, entry: StoredServerState, store: StateStore) -> tuple[RoundIndex, ServerState]:
        phase, arrays = entry.index.phase, store.read(entry.stored)
        discrete = {**self._models[phase].discrete, **taken_from(arrays)}
        model, eval_model = arrays.pop("model"), arrays.pop("eval_model", None)
        values = {name.removeprefix("state/"): array for name, array in arrays.items()}
        declared = dict(self._plans[phase].server_state)
        of, clients = self._models[phase], self._plans[phase].num_clients
        state = ServerState(model, of.num_params, clients, values, declared, of.layout, eval_model, discrete=discrete)
        state.constants = self._constants.read(store, entry.constants)
        return entry.index, state

    def _stored(self, store: StateStore, index: RoundIndex, state: ServerState) -> StoredServerState:
        arrays = _arrays(state.model, state.discrete)
        arrays |= {f"state/{name}": array for name, array in state.state.items()}
        if state.eval_model is not None:
            arrays["eval_model"] = state.eval_model
        return StoredServerState(index, store.write(arrays), self._constants.write(store, state.constants))

    def _taken_over(self, before: RoundIndex, latest: ServerState, phase: int) -> WholeModel:
        """Returns a copy of a phase's evaluated model as a later phase takes it over; shares its constants once."""
        given = WholeModel(latest.evaluated(), latest.discrete, latest.constants)
        taken = self._run.taken_over(given, before.phase, phase)
        constants = taken.constants
        if constants is not None and constants is not given.constants:
            if self._begun is None or self._begun[0] != (before.round, phase):
                self._begun = (before.round, phase), self._share(constants)
            constants = self._begun[1]
        return WholeModel(np.array(taken.vector), taken.discrete, constants)

    def _latest(self) -> tuple[RoundIndex, ServerState]:
        return self._waiting[max(self._waiting)] if self._waiting else self._kept

    def _state_after(self, round: int) -> ServerState:
        return self._waiting[round][1] if round in self._waiting else self._kept[1]

    def _staged(self, round_index: RoundIndex, before: RoundIndex, latest: ServerState) -> ServerState:
        """Returns a working copy of the state after a round; a phase starts from the previous one's evaluated model."""
        state, plan = latest.staged(), self._plans[round_index.phase]
        if before.phase != round_index.phase:
            taken = self._taken_over(before, latest, round_index.phase)
            state.model, state.discrete, state.constants = taken.vector, taken.discrete, taken.constants
            of = self._models[round_index.phase]
            state.eval_model, state.num_params, state.layout = None, of.num_params, of.layout
            state.num_clients = plan.num_clients
            declared = self._plans[before.phase].server_state  # without state of scope `run` from earlier phases
            state.state = {name: value for name, value in state.state.items() if declared.get(name, "run") == "run"}
        state.declared = dict(plan.server_state)
        return state


def weighted_mean(weights: Sequence[float], vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Averages vectors in the given order, in float64 rounded once to float32; copies a single one."""
    if len(vectors) == 1:
        return np.array(vectors[0])
    total = np.zeros(len(vectors[0]))
    for weight, vector in zip(weights, vectors, strict=True):
        total += weight * vector.astype(np.float64)
    return (total / sum(weights)).astype(np.float32)


def stored_model(
    store: StateStore,
    stored: StoredServerState | StoredModel,
    constants: StoredConstants | None = None,
) -> SentModel:
    """Reads the model to evaluate from a stored state of the server, or a model that was stored alone.

    Args:
        store: The store.
        stored: The state or model.
        constants: Reads constants, if not only this model needs them.

    Raises:
        DamagedStateError: It is missing or damaged.
    """
    arrays = store.read(stored.stored)
    discrete = taken_from(arrays)
    return joined(
        arrays.get("eval_model", arrays["model"]),
        discrete,
        (constants or StoredConstants()).read(store, stored.constants),
    )


def _evaluated(state: ServerState) -> SentModel:
    return joined(np.array(state.evaluated()), state.discrete, state.constants)


def _arrays(vector: np.ndarray, discrete: Discrete) -> dict[str, np.ndarray]:
    return {"model": vector, **for_storage(discrete)}
