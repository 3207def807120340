"""Client state: staged by a client update, kept once its round is committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch

from rayfl.algorithms.state import Scope
from rayfl.errors import RayflError
from rayfl.planning.round_index import RoundIndex

State = dict[str, torch.Tensor]
Snapshot = dict[int, dict[str, np.ndarray]]
"""Every client's state by its number, then by scope and name: `phase/control`."""


class ClientStates:
    """The states of one host's clients, in main memory.

    A client update works on a copy. What it leaves is staged: later exchanges of the same round see it, and it replaces
    the client's state only when the round is committed. A repeated update therefore never applies twice.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, State]] = {"phase": {}, "run": {}}
        self._staged: dict[int, State] = {}
        self._phase = self._round = self._commits = 0

    def open(
        self, client: int, round_index: RoundIndex, exchange: int, commits: int | None, device: torch.device
    ) -> State:
        """Returns a copy of the client's state on a device.

        Args:
            client: The client's number.
            round_index: The current round; what an earlier phase or round was to keep no longer is dropped.
            exchange: Number of the exchange in its round.
            commits: Number of rounds that must have been committed here; None where the phase keeps nothing beyond its
                rounds, so that nothing is missed on a host that was restarted.
            device: Where the copy goes.

        Raises:
            RayflError: The host was restarted and has lost the states.
        """
        if round_index.phase != self._phase:
            self._phase, self._kept["phase"] = round_index.phase, {}
        if round_index.round != self._round:
            self._round, self._staged = round_index.round, {}
        if commits is not None and (commits != self._commits or (exchange and client not in self._staged)):
            raise _lost(commits)
        kept = {**self._kept["run"].get(client, {}), **self._kept["phase"].get(client, {})}
        state = self._staged.get(client, kept) if exchange else kept
        return {name: tensor.to(device, copy=True) for name, tensor in state.items()}

    def kept(self, client: int, phase: int, commits: int | None, device: torch.device) -> State:
        """Returns a copy of what a client keeps between two rounds, on a device.

        Args:
            client: The client's number.
            phase: The current phase.
            commits: As for `open`.
            device: Where the copy goes.

        Raises:
            RayflError: The host was restarted and has lost the states.
        """
        if commits is not None and commits != self._commits:
            raise _lost(commits)
        of_phase = self._kept["phase"].get(client, {}) if phase == self._phase else {}
        kept = {**self._kept["run"].get(client, {}), **of_phase}
        return {name: tensor.to(device, copy=True) for name, tensor in kept.items()}

    def stage(self, client: int, state: Mapping[str, torch.Tensor]) -> None:
        """Stages a copy of the state that a client update left."""
        # a copy: what an algorithm keeps may be a view of the resident model, which the next update overwrites; in main
        # memory, since a GPU's would fill up with clients
        self._staged[client] = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}

    def commit(self, clients: Collection[int], scopes: Mapping[str, Scope]) -> None:
        """Replaces the kept states of this host's clients by those that the round staged.

        Args:
            clients: The host's clients that took part.
            scopes: The scope of every name that the phase declares; state of scope `round` is dropped.

        Raises:
            RayflError: One of them has staged nothing, so this host was restarted.
        """
        if not self._staged.keys() >= set(clients):
            raise _lost(self._commits)
        for client, state in self._staged.items():
            for scope, kept in self._kept.items():
                # what this phase does not declare, an earlier one keeps through the run
                own = {name: tensor for name, tensor in state.items() if scopes.get(name, "run") == scope}
                if own:
                    kept[client] = own
                else:
                    kept.pop(client, None)
        self._staged = {}
        self._commits += 1

    def snapshot(self, phase: int) -> Snapshot:
        """The committed states of a phase, as plain data."""
        result: Snapshot = {}
        for scope, kept in self._kept.items():
            if scope == "phase" and phase != self._phase:  # they are an earlier phase's
                continue
            for client, state in kept.items():
                named = {f"{scope}/{name}": tensor.numpy().copy() for name, tensor in state.items()}
                result.setdefault(client, {}).update(named)
        return result

    def restore(self, states: Snapshot, phase: int, commits: int) -> None:
        """Replaces everything by a snapshot's states.

        Args:
            states: The states of this host's clients.
            phase: The phase that they are from.
            commits: Number of rounds that had been committed.
        """
        self._kept, self._staged = {"phase": {}, "run": {}}, {}
        self._phase, self._commits = phase, commits
        for client, state in states.items():
            for key, values in state.items():
                scope, _, name = key.partition("/")
                self._kept[scope].setdefault(client, {})[name] = torch.from_numpy(np.array(values))


def _lost(commits: int) -> RayflError:
    return RayflError(f"the states of this host's clients are lost: it was restarted after {commits} committed rounds")
