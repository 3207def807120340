"""Client state: staged by a client update, kept once the round is committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch

from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.state.committed_rounds import KEPT, CommittedRounds, KeptState
from rayfl.engine.state.segments import StateSegments, StoredStates, WrittenStates, states_of
from rayfl.engine.state.state_store import StateStore
from rayfl.engine.state.tensor_memory import KeptTensor, TensorMemory
from rayfl.errors import RayflError, StateLostError
from rayfl.local.client_state import BUFFER_OF
from rayfl.local.state import Scope

State = dict[str, torch.Tensor]

_Kept = dict[str, KeptTensor]


class ClientStates:
    """The states of one host's clients, including staged ones: in memory up to a budget, beyond it on disk.

    A client update works on a copy. The state that it leaves is staged: later exchanges of the same round see it, and
    it replaces the client's state only when the round is committed. A repeated update therefore never applies twice.

    Every call says which round left the client's state (`CommittedRounds`; None if there is no state yet). So a host
    that was restarted, or whose calls arrive out of order, never trains a client from the wrong state.

    Args:
        budget_bytes: Limit on the main memory that the states use.

    Attributes:
        memory: Where the states are kept.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.memory = TensorMemory(budget_bytes)
        self._rounds = CommittedRounds()
        self._kept: dict[Scope, dict[int, _Kept]] = {scope: {} for scope in KEPT}
        self._staged: defaultdict[int, dict[int, _Kept]] = defaultdict(dict)
        self._segments = StateSegments()

    def open(
        self,
        client: int,
        round_index: RoundIndex,
        exchange: int,
        committed: Mapping[int, int] | None,
        device: torch.device,
    ) -> State:
        """Returns a copy of the client's state on a device.

        Args:
            client: The client's number.
            round_index: The current round.
            exchange: Number of the exchange in its round.
            committed: By client, the round that left its state. None if the phase keeps no state beyond a round; then a
                restarted host misses nothing.
            device: Device of the copy.

        Raises:
            StateLostError: The state is lost.
            RayflError: The state is from a later round.
        """
        self._enter(round_index.phase)
        if committed is None:
            for round in [round for round in self._staged if round < round_index.round]:
                del self._staged[round]
        else:
            self._check(client, committed.get(client), round_index.phase)
        staged = self._staged[round_index.round]
        if committed is not None and exchange and client not in staged:
            raise _lost(client, f"after exchange {exchange - 1} of round {round_index.round}")
        state = staged.get(client) if exchange else None
        return _copy(self._all(client) if state is None else state, device)

    def kept(self, client: int, phase: int, committed: Mapping[int, int] | None, device: torch.device) -> State:
        """Returns a copy of a client's state between two rounds, on a device; arguments as for `open`.

        Raises:
            StateLostError: The state is lost.
            RayflError: The state is from a later round.
        """
        self._enter(phase)
        if committed is not None:
            self._check(client, committed.get(client), phase)
        return _copy(self._all(client), device)

    def stage(self, client: int, round: int, state: Mapping[str, torch.Tensor]) -> None:
        """Stages a copy of the state that a client update left.

        Raises:
            ResourceError: The state fits neither into memory nor on disk.
        """
        # a copy, since the state may be a view of the resident model, which the next update overwrites
        self._staged[round].pop(client, None)
        self._staged[round][client] = self._keep(state)

    def commit(self, round_index: RoundIndex, clients: Collection[int], scopes: Mapping[str, Scope]) -> None:
        """Replaces the kept states of this host's clients by those staged in a round; repeating it has no effect.

        Args:
            round_index: The round.
            clients: The host's clients that took part.
            scopes: The scope of every name that the phase declares; state of scope `round` is dropped.

        Raises:
            StateLostError: A client has no staged state, so this host was restarted.
        """
        self._enter(round_index.phase)
        staged = self._staged[round_index.round]
        clients = [client for client in clients if self._rounds.of(client, round_index.phase) != round_index.round]
        for client in clients:
            if client not in staged:
                raise _lost(client, f"after round {round_index.round}")
        declared = set(scopes.values())
        self._rounds.commit(round_index, clients, declared)
        for client in clients:
            for scope, states in self._kept.items():
                # a name that this phase does not declare belongs to an earlier one, with scope `run`
                own = {name: value for name, value in staged[client].items() if _scope(name, scopes) == scope}
                if own or scope in declared:
                    states[client] = own
        for round in [round for round in self._staged if round <= round_index.round]:
            del self._staged[round]

    def snapshot(self, phase: int, store: StateStore) -> Callable[[], WrittenStates]:
        """Captures the states that clients keep in a phase.

        Returns:
            Function that writes to the store those that the snapshot before has not written. It may be called in
            another thread while later rounds are committed.
        """
        # later rounds replace the captured tensors and never modify them
        rounds, kept = self._rounds.captured(phase), {scope: dict(states) for scope, states in self._kept.items()}

        def write() -> WrittenStates:
            states = states_of(rounds)
            if not len(states):
                self._segments = StateSegments()
                return (), states
            stored = self._segments.write(
                states,
                lambda client, scope: {name: tensor.array() for name, tensor in kept[scope][client].items()},
                store,
            )
            return (stored,), states

        return write

    def restore(
        self, parts: Sequence[StoredStates], own: Callable[[np.ndarray], np.ndarray], phase: int, store: StateStore
    ) -> None:
        """Replaces all states by those of a snapshot.

        Args:
            parts: The snapshot's parts of all hosts.
            own: Returns which of some clients, int64 [clients], are this host's.
            phase: The phase of the snapshot's round.
            store: Where the states are.

        Raises:
            DamagedStateError: A state is missing or damaged.
            ResourceError: The states fit neither into memory nor on disk.
        """
        self._kept, self._segments = {scope: {} for scope in KEPT}, StateSegments()
        self._staged.clear()
        rounds = list[KeptState]()
        for client, scope, round, arrays in self._segments.read(parts, own, store):
            self._kept[scope][client] = self._keep({name: torch.from_numpy(array) for name, array in arrays.items()})
            rounds.append((client, scope, round))
        self._rounds.restore(phase, rounds)

    def _enter(self, phase: int) -> None:
        if self._rounds.enter(phase):
            self._kept["phase"] = {}

    def _keep(self, state: Mapping[str, torch.Tensor]) -> _Kept:
        return {name: self.memory.keep(tensor) for name, tensor in state.items()}

    def _all(self, client: int) -> _Kept:
        return {**self._kept["run"].get(client, {}), **self._kept["phase"].get(client, {})}

    def _check(self, client: int, committed: int | None, phase: int) -> None:
        held = self._rounds.of(client, phase)
        if held == committed:
            return
        if held is None:
            raise _lost(client, f"after round {committed}")
        if committed is not None and held < committed:
            raise StateLostError(
                f"the state of client {client} after round {committed} is lost: its worker only has the state after "
                f"round {held}"
            )
        expected = "no state yet" if committed is None else f"the state after round {committed}"
        raise RayflError(
            f"the state of client {client} is out of order: its worker already has the state after round {held}, but "
            f"this call expects {expected}; a schedule must commit a client's rounds in order"
        )


def _scope(name: str, scopes: Mapping[str, Scope]) -> Scope:
    return scopes.get(name) or scopes.get(name.partition(BUFFER_OF)[0], "run")


def _copy(state: Mapping[str, KeptTensor], device: torch.device) -> State:
    return {name: tensor.copy(device) for name, tensor in state.items()}


def _lost(client: int, when: str) -> StateLostError:
    return StateLostError(f"the state of client {client} {when} is lost: its worker was restarted and no longer has it")
