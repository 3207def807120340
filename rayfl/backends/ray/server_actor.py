"""The server as an actor; it also holds the references to the data and to models in transit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray

from rayfl.backends.ray.failures import DeadlyClients, Started
from rayfl.backends.ray.object_arrays import mapped
from rayfl.engine.server import Server

if TYPE_CHECKING:
    from rayfl.backends.ray.user_code import UserCode
    from rayfl.engine.plan.run_plan import RunPlan
    from rayfl.models.tensors import SentModel

PlanBox = list["ray.ObjectRef[RunPlan]"]

ModelBox = list["ray.ObjectRef[SentModel]"]


class ServerActor:
    """A `rayfl.engine.server.Server` in a separate process, which starts while the hosts still import PyTorch."""

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
            return Server(run, lambda constants: mapped(ray.put(constants)))

        self._given, self._deadly = (code, whole), DeadlyClients()
        self._server = Started("the server", make)

    def invoke(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the server."""
        return getattr(self._server.get(), method)(*arguments)

    def given(self) -> tuple[UserCode, PlanBox]:
        """The user's code and the plan for hosts, even if the server itself failed to begin the run."""
        return self._given

    def hold(self, model: SentModel) -> ModelBox:
        """Stores a copy of a model under a reference that this process owns and that has no lineage.

        The copy is on this node, the driver's, so it survives the loss of other nodes.
        """
        return [ray.put(model)]
