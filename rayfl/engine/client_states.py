"""What clients keep from round to round: staged by a visit, kept once its round is committed."""

from __future__ import annotations

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

    def open(self, client: int, commits: int) -> State:
        """A copy of the client's state. `commits`: how many rounds must have been committed here.

        Raises:
            RayflError: this host has seen fewer, so it was restarted and has lost the states.
        """
        if commits != self._commits:
            raise RayflError(
                f"the states of this host's clients are lost: it was restarted after {commits} committed rounds"
            )
        state = self._staged.get(client, self._kept.get(client, {}))
        return {name: vector.clone() for name, vector in state.items()}

    def stage(self, client: int, state: State) -> None:
        self._staged[client] = {name: vector.detach() for name, vector in state.items()}

    def commit(self) -> None:
        self._kept.update(self._staged)
        self._staged = {}
        self._commits += 1
