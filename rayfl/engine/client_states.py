"""What clients keep from round to round: staged by a visit, kept once its round is committed."""

from __future__ import annotations

from collections.abc import Collection

import torch

from rayfl.errors import RayflError

State = dict[str, torch.Tensor]


class ClientStates:
    """States of the clients of one host.

    A visit works on a copy; what it leaves is staged, seen by later exchanges of the same round, and replaces the
    client's state only when the round is committed. A repeated visit therefore never applies twice.
    """

    def __init__(self) -> None:
        self._kept: dict[int, State] = {}
        self._staged: dict[int, State] = {}
        self._commits = 0

    def open(self, client: int, commits: int, device: torch.device, again: bool = False) -> State:
        """A copy of the client's state, on a device.

        commits: how many rounds must have been committed here. again: the client was visited in this round before.

        Raises:
            RayflError: it was not, or they were not, so this host was restarted and has lost the states.
        """
        if commits != self._commits or (again and client not in self._staged):
            raise _lost(commits)
        state = self._staged.get(client, self._kept.get(client, {}))
        return {name: vector.to(device, copy=True) for name, vector in state.items()}

    def stage(self, client: int, state: State) -> None:
        # a copy: what an algorithm keeps may be a view of the resident model, which the next visit overwrites; in main
        # memory, since a GPU's would fill up with clients
        self._staged[client] = {name: vector.detach().to("cpu", copy=True) for name, vector in state.items()}

    def commit(self, clients: Collection[int]) -> None:
        """Keeps what the round's visits to these clients of this host left.

        Raises:
            RayflError: one of them left nothing here, so this host was restarted since.
        """
        if not self._staged.keys() >= set(clients):
            raise _lost(self._commits)
        self._kept.update(self._staged)
        self._staged = {}
        self._commits += 1


def _lost(commits: int) -> RayflError:
    return RayflError(f"the states of this host's clients are lost: it was restarted after {commits} committed rounds")
