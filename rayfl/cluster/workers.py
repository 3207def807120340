"""Actors as the engine's workers, and Ray's failures as rayfl's errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, ObjectLostError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from rayfl.engine.backend import Ref
from rayfl.errors import RayflError, ResourceError


class ActorWorker:
    """A host or the server as an actor: a call is a remote call, a reference an object reference."""

    def __init__(self, actor: Any, name: str) -> None:
        self.actor: ActorHandle[Any] = actor
        self.name = name

    def call(self, method: str, *arguments: Any, returns: int | Literal["streaming"] = 1) -> Any:
        return getattr(self.actor, method).options(num_returns=returns).remote(*arguments)


class RayBackend:
    """Hosts and server as actors."""

    def __init__(self, hosts: Sequence[ActorWorker], server: ActorWorker) -> None:
        self.hosts, self.server = hosts, server

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
            raise as_rayfl_error(error, [*self.hosts, self.server]) from None


def as_rayfl_error(error: RayError, workers: Sequence[ActorWorker]) -> RayflError:
    """The error that a remote call failed with, told in rayfl's words; rayfl's own come back as they were raised."""
    cause: BaseException = error
    while isinstance(cause, RayTaskError) and isinstance(cause.cause, BaseException) and cause.cause is not cause:
        cause = cause.cause
    if isinstance(cause, RayflError):
        return cause
    if isinstance(cause, RayTaskError):
        return RayflError(f"a remote call failed:\n{cause}")
    if isinstance(cause, OutOfMemoryError):
        return ResourceError(f"a node ran out of memory: start fewer hosts (resources.hosts)\n{cause}")
    if isinstance(cause, ObjectLostError):
        return ResourceError(f"a node was lost, and with it what only it held:\n{cause}")
    if isinstance(cause, RayActorError):
        name = next((w.name for w in workers if w.actor._actor_id.hex() == cause.actor_id), "an actor")
        init = isinstance(cause, ActorDiedError) and cause.actor_init_failed
        return ResourceError(f"{name} {'could not start' if init else 'died'}:\n{cause}")
    return RayflError(f"{type(cause).__name__}: {cause}")
