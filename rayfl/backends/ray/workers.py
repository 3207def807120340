"""Actors as the engine's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from rayfl.backends.ray.failures import as_rayfl_error
from rayfl.backends.ray.private import actor_id
from rayfl.engine.backend import Ref, Worker


class ActorWorker:
    """A host, the server or the scheduler as an actor: calls are remote calls, and references are Ray's.

    Args:
        actor: The actor's handle.
        name: Its name in messages.
        kind: Its class.
    """

    def __init__(self, actor: Any, name: str, kind: type) -> None:
        self.actor: ActorHandle[Any] = actor
        self.name, self._kind = name, kind.__name__

    def call(self, method: str, *arguments: Any, returns: int | Literal["streaming"] = 1) -> Any:
        """Calls a method of the actor, or else of what it holds, under whose name Ray then shows the call."""
        if hasattr(self.actor, method):
            return getattr(self.actor, method).options(num_returns=returns).remote(*arguments)
        return self.actor.invoke.options(name=f"{self._kind}.{method}", num_returns=returns).remote(method, *arguments)


class RayBackend:
    """Hosts and server as actors; see `Backend`.

    Attributes:
        beats: By host, the number of batches that it has made.
    """

    rounds_ahead = 1

    def __init__(self, hosts: Sequence[ActorWorker], server: ActorWorker, nodes: Sequence[str] = ()) -> None:
        self.hosts: list[Any] = list(hosts)
        self.nodes: list[object] = list(nodes)
        self.server = server
        self.beats: dict[int, int] = {}

    def add(self, hosts: Sequence[Worker], nodes: Sequence[object]) -> None:
        self.hosts += hosts
        self.nodes += nodes

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        refs = list(refs)
        done, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
        if done and len(refs) > 1:
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return list(done)

    def get(self, ref: Ref) -> Any:
        try:
            return ray.get(ref)
        except RayError as error:
            raise as_rayfl_error(error, self._names()) from None

    def progress(self) -> int:
        return sum(self.beats.values())

    def detached(self, ref: Ref) -> Ref:
        (held,) = self.get(self.server.call("hold", ref))
        return held

    def _names(self) -> dict[str, str]:
        return names_of([*self.hosts, self.server])


def names_of(workers: Sequence[ActorWorker]) -> dict[str, str]:
    """The name of each actor by its id in hexadecimal digits."""
    return {actor_id(worker.actor): worker.name for worker in workers}
