"""The server as an actor; it also holds the references to the data and to models in transit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import ray

from rayfl.backends.ray.failures import DeadlyClients, Started
from rayfl.engine.server import Server, ServerSnapshot

if TYPE_CHECKING:
    from rayfl.algorithms.exchange import Exchange
    from rayfl.backends.ray.user_code import UserCode
    from rayfl.engine.plan.rounds import RoundIndex
    from rayfl.engine.plan.run_plan import RunPlan
    from rayfl.engine.reduction import HostAnswers
    from rayfl.engine.state.state_store import StateStore, Stored
    from rayfl.models.tensors import SentModel

PlanBox = list["ray.ObjectRef[RunPlan]"]

ModelBox = list["ray.ObjectRef[SentModel]"]


class ServerActor:
    """A `rayfl.engine.server.Server` in a separate process, which starts while the hosts still import PyTorch."""

    def __init__(self, code: UserCode, run: RunPlan, whole: PlanBox) -> None:
        self.open(code, run, whole)

    def begins(self, host: int, clients: Sequence[int]) -> int:
        return self._deadly.begins(host, clients)

    def died(self, host: int) -> None:
        self._deadly.died(host)

    def deaths(self) -> dict[int, int]:
        return self._deadly.deaths()

    def suspect(self, deaths: Mapping[int, int]) -> None:
        self._deadly.add(deaths)

    def open(self, code: UserCode, run: RunPlan, whole: PlanBox) -> None:
        """Begins a run; discards everything from the previous one.

        Args:
            code: The user's code.
            run: The run's plan without data.
            whole: A reference to the whole plan, for the hosts.
        """

        def make() -> Server:
            code.make_importable()
            return Server(run)

        self._given, self._deadly = (code, whole), DeadlyClients()
        self._server = Started("the server", make)

    def begin(self, round_index: RoundIndex, cohort: Sequence[int], last: tuple[int, int] | None = None) -> Exchange:
        return self._server.get().begin(round_index, cohort, last)

    def receive(
        self, round_index: RoundIndex, discounts: Sequence[float] | None, *parts: HostAnswers
    ) -> tuple[Mapping[str, float], Exchange | None]:
        return self._server.get().receive(round_index, discounts, *parts)

    def mix(self, round_index: RoundIndex, began: int, share: float, part: HostAnswers) -> Mapping[str, float]:
        return self._server.get().mix(round_index, began, share, part)

    def adopt(self, round_index: RoundIndex, weights: Sequence[float], *models: SentModel) -> None:
        self._server.get().adopt(round_index, weights, *models)

    def keep(self, round_index: RoundIndex) -> None:
        self._server.get().keep(round_index)

    def commit(self, round_index: RoundIndex, open_rounds: Collection[int]) -> None:
        self._server.get().commit(round_index, open_rounds)

    def committed(self, last: int | None) -> tuple[int, SentModel]:
        return self._server.get().committed(last)

    def end_of_phase(self, round: int) -> SentModel | None:
        return self._server.get().end_of_phase(round)

    def model_after(self, round_index: RoundIndex) -> SentModel:
        return self._server.get().model_after(round_index)

    def model_for(self, phase: int) -> SentModel:
        return self._server.get().model_for(phase)

    def snapshot(self, round_index: RoundIndex, store: StateStore, *models: SentModel) -> None:
        self._server.get().snapshot(round_index, store, *models)

    def written(self, round_index: RoundIndex, wait: bool) -> ServerSnapshot | None:
        return self._server.get().written(round_index, wait)

    def restore(self, snapshot: ServerSnapshot, store: StateStore) -> None:
        self._server.get().restore(snapshot, store)

    def stored_model(self, store: StateStore, stored: Stored) -> SentModel:
        return self._server.get().stored_model(store, stored)

    def given(self) -> tuple[UserCode, PlanBox]:
        """The user's code and the plan for hosts, even if the server itself failed to begin the run."""
        return self._given

    def hold(self, model: SentModel) -> ModelBox:
        """Stores a copy of a model under a reference that this process owns and that has no lineage.

        The copy is on this node, the driver's, so it survives the loss of other nodes.
        """
        return [ray.put(model)]
