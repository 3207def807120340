"""A host as a Ray actor; all hosts on a node map the same copy of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from rayfl.backends.ray.failures import SEEN, Started, verdict
from rayfl.engine.memory import keep_freed_memory
from rayfl.errors import LostError, ResourceError

if TYPE_CHECKING:
    from rayfl.algorithms.exchange import Exchange
    from rayfl.backends.ray.server_actor import PlanBox
    from rayfl.backends.ray.user_code import UserCode
    from rayfl.engine.events import Evaluated
    from rayfl.engine.host import Host
    from rayfl.engine.plan.rounds import RoundIndex
    from rayfl.engine.plan.slices import Slice
    from rayfl.engine.reduction import HostAnswers
    from rayfl.engine.scoring import Score
    from rayfl.engine.state.state_store import StateStore, StoredState
    from rayfl.engine.totals import UpdateReport
    from rayfl.models.tensors import SentModel


class HostActor:
    """A `rayfl.engine.host.Host` behind the methods of an actor.

    The host is a member rather than a base class: the scheduler imports this class with its handles, and should not
    import PyTorch. The actor finds the server by name and fetches the run from it: when Ray restarts the actor, a later
    run may be under way, and objects among the constructor's arguments may be gone.
    """

    def __init__(self, index: int, server: str) -> None:
        keep_freed_memory()
        self._index, self._server, self._watched = index, server, False
        self.open()
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.watch()
            with suppress(RayError, LostError):  # if the server died too, the next call reports it
                ray.get(self._keeper().died.remote(index))

    def watch(self) -> None:
        """Announces clients to the server from now on, before they are trained."""
        self._watched = True

    def _begins(self, clients: Sequence[int]) -> None:
        if self._watched and ray.get(self._keeper().begins.remote(self._index, clients)) >= SEEN:
            raise ResourceError(verdict(clients))

    def _keeper(self) -> Any:
        try:
            return ray.get_actor(self._server)
        except ValueError:  # Ray raises it for an unknown name
            raise LostError("the server died") from None

    def open(self, told: None = None) -> None:
        """Begins the server's run; discards everything from the previous one.

        Args:
            told: The result of the server's `open`, for which this call must wait.
        """
        self._watched = False
        self._host: Started[Host] | None = None  # frees the previous run's memory first
        self._host = Started(f"worker {self._index}", self._make)

    def _make(self) -> Host:
        from rayfl.engine.host import Host

        given: tuple[UserCode, PlanBox] = ray.get(self._keeper().given.remote())
        code, whole = given
        code.make_importable()
        return Host(self._index, ray.get(whole[0]), self._begins)

    @property
    def _opened(self) -> Host:
        assert self._host is not None
        return self._host.get()

    def describe(self) -> dict[str, str]:
        return self._opened.describe() | {"node": ray.util.get_node_ip_address()}

    def answer(
        self,
        round_index: RoundIndex,
        groups: Sequence[Sequence[int]],
        exchange: Exchange,
        committed: Mapping[int, int] | None,
    ) -> tuple[HostAnswers, UpdateReport]:
        return self._opened.answer(round_index, groups, exchange, committed)

    def answer_for_server(self, round_index: RoundIndex, exchange: Exchange) -> tuple[HostAnswers, UpdateReport]:
        return self._opened.answer_for_server(round_index, exchange)

    def relay(
        self,
        round_index: RoundIndex,
        clients: Sequence[int],
        model: SentModel,
        committed: Mapping[int, int] | None,
    ) -> tuple[SentModel, UpdateReport]:
        return self._opened.relay(round_index, clients, model, committed)

    def commit(self, round_index: RoundIndex, clients: Sequence[int]) -> None:
        self._opened.commit(round_index, clients)

    def snapshot(self, round_index: RoundIndex, store: StateStore) -> None:
        self._opened.snapshot(round_index, store)

    def written(self, round_index: RoundIndex, wait: bool) -> list[StoredState] | None:
        return self._opened.written(round_index, wait)

    def restore(self, round_index: RoundIndex, states: Sequence[StoredState], store: StateStore) -> None:
        self._opened.restore(round_index, states, store)

    def evaluate(
        self,
        round_index: RoundIndex,
        model: SentModel,
        slices: Sequence[Slice],
        committed: Mapping[int, int] | None,
    ) -> list[Score]:
        return self._opened.evaluate(round_index, model, slices, committed)

    def summarize(self, round_index: RoundIndex, *scores: list[Score]) -> Evaluated:
        return self._opened.summarize(round_index, *scores)
