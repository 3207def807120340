"""A host as an actor: one of a node's processes that map the same copy of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import ray

from rayfl.cluster.deferred_failure import Started
from rayfl.cluster.main_objects import install_main_objects
from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import make_importable
from rayfl.engine.memory import keep_freed_memory

if TYPE_CHECKING:
    from rayfl.algorithms.exchange import Exchange
    from rayfl.engine.host import Host
    from rayfl.engine.reduction import HostAnswers
    from rayfl.engine.scoring import Score
    from rayfl.engine.state_store import StateStore, StoredState
    from rayfl.planning.events import Evaluated
    from rayfl.planning.round_index import RoundIndex
    from rayfl.planning.slices import Slice
    from rayfl.planning.update_report import UpdateReport


class HostActor:
    """A `rayfl.engine.host.Host` behind the methods of an actor.

    The host is a member and no base class: the scheduler loads this class with its handles, and should not load
    PyTorch. The data comes from the server, which is found by name: an object among the constructor's own arguments
    may be gone when Ray restarts the actor.
    """

    def __init__(
        self,
        index: int,
        scenario: Scenario,
        server: str,
        main_objects: bytes,
    ) -> None:
        def make() -> Host:
            make_importable(scenario.module_folders)
            install_main_objects(main_objects)
            from rayfl.engine.host import Host

            keeper: Any = ray.get_actor(server)
            box: Any = ray.get(keeper.workloads.remote())
            workloads, protection = ray.get(box[0])
            return Host(index, scenario, workloads, protection)

        keep_freed_memory()
        self._host = Started(f"host {index}", make)

    def describe(self) -> dict[str, str]:
        return self._host.get().describe() | {"node": ray.util.get_node_ip_address()}

    def answer(
        self,
        round_index: RoundIndex,
        groups: Sequence[Sequence[int]],
        exchange: Exchange,
        committed: Mapping[int, int] | None,
    ) -> tuple[HostAnswers, UpdateReport]:
        return self._host.get().answer(round_index, groups, exchange, committed)

    def answer_for_server(self, round_index: RoundIndex, exchange: Exchange) -> tuple[HostAnswers, UpdateReport]:
        return self._host.get().answer_for_server(round_index, exchange)

    def relay(
        self,
        round_index: RoundIndex,
        clients: Sequence[int],
        model: np.ndarray,
        committed: Mapping[int, int] | None,
    ) -> tuple[np.ndarray, UpdateReport]:
        return self._host.get().relay(round_index, clients, model, committed)

    def commit(self, round_index: RoundIndex, clients: Sequence[int]) -> None:
        self._host.get().commit(round_index, clients)

    def snapshot(self, round_index: RoundIndex, store: StateStore) -> list[StoredState]:
        return self._host.get().snapshot(round_index, store)

    def restore(self, round_index: RoundIndex, states: Sequence[StoredState], store: StateStore) -> None:
        self._host.get().restore(round_index, states, store)

    def evaluate(
        self,
        round_index: RoundIndex,
        model: np.ndarray,
        slices: Sequence[Slice],
        committed: Mapping[int, int] | None,
    ) -> list[Score]:
        return self._host.get().evaluate(round_index, model, slices, committed)

    def summarize(self, round_index: RoundIndex, *scores: list[Score]) -> Evaluated:
        return self._host.get().summarize(round_index, *scores)
