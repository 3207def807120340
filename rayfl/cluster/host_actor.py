"""A host as an actor: one of the node's processes that map the same copy of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import ray

from rayfl.config.scenario import Scenario
from rayfl.engine.memory import keep_freed_memory

if TYPE_CHECKING:
    from rayfl.algorithms.exchange import Exchange
    from rayfl.engine.evaluation import Score, Slice
    from rayfl.engine.reduction import HostAnswers
    from rayfl.engine.turn import Turn, VisitReport


class HostActor:
    """A `rayfl.engine.host.Host` behind an actor's methods.

    It is made here, not inherited from: the scheduler loads this class with its handles, and shall not load PyTorch.
    The data is asked of the server, by name: an argument of the actor's own may be gone when Ray starts it anew.
    """

    def __init__(self, index: int, scenario: Scenario, server: str) -> None:
        from rayfl.engine.host import Host

        keep_freed_memory()
        keeper: Any = ray.get_actor(server)
        box: Any = ray.get(keeper.store.remote())
        self._host = Host(index, scenario, ray.get(box[0]))

    def describe(self) -> dict[str, str]:
        return self._host.describe() | {"node": ray.util.get_node_ip_address()}

    def answer(self, turn: Turn, clients: Sequence[int], exchange: Exchange) -> tuple[HostAnswers, VisitReport]:
        return self._host.answer(turn, clients, exchange)

    def relay(self, turn: Turn, clients: Sequence[int], model: np.ndarray) -> tuple[np.ndarray, VisitReport]:
        return self._host.relay(turn, clients, model)

    def commit(self, turn: Turn, clients: Sequence[int]) -> None:
        self._host.commit(turn, clients)

    def evaluate(self, turn: Turn, model: np.ndarray, slices: Sequence[Slice]) -> list[Score]:
        return self._host.evaluate(turn, model, slices)
