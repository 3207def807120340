"""A host as a Ray actor; all hosts on a node map the same copy of the data."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from rayfl.backends.ray.failures import SEEN, Started, verdict
from rayfl.engine.exact_sum import SumMemory
from rayfl.engine.memory import collection_paused, keep_freed_memory
from rayfl.errors import LostError, ResourceError

if TYPE_CHECKING:
    from rayfl.backends.ray.server_actor import PlanBox
    from rayfl.backends.ray.user_code import UserCode
    from rayfl.engine.host import Host


BEATS_EVERY_S = 5.0
"""How often a host reports its progress at least, unless `resources.watchdog_s` is shorter."""


def scheduler_name(server: str) -> str:
    """The scheduler's name as an actor, from the server's."""
    return f"{server}-scheduler"


class HostActor:
    """A `rayfl.engine.host.Host` behind the methods of an actor.

    The host is a member rather than a base class: the scheduler imports this class with its handles, and should not
    import PyTorch. The actor finds the server by name and fetches the run from it: when Ray restarts the actor, a later
    run may be under way, and objects among the constructor's arguments may be gone.
    """

    def __init__(self, index: int, server: str) -> None:
        keep_freed_memory()
        self._index, self._server, self._watched, self._reported = index, server, False, 0
        self._host: Started[Host] | None = None
        self._memory = SumMemory()
        self._beats_every_s = BEATS_EVERY_S
        Thread(target=self._beat, daemon=True).start()
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.open()
            self.watch()
            with suppress(RayError, LostError):  # if the server died too, the next call reports it
                ray.get(self._keeper().died.remote(index))
        else:
            with suppress(Exception), collection_paused():  # `open` reports it
                importlib.import_module("rayfl.engine.host")  # PyTorch, while the run may still be prepared

    def watch(self) -> None:
        """Announces clients to the server from now on, before they are trained."""
        self._watched = True

    def _beat(self) -> None:
        """Reports to the scheduler, again and again, how many batches the host has made since the last time."""
        while True:
            time.sleep(self._beats_every_s)
            host = self._host
            made = host.get().batches_made if host is not None and host.is_there else 0
            if made > self._reported:
                with suppress(RayError, ValueError):  # the scheduler is dead, or not there yet
                    scheduler: Any = ray.get_actor(scheduler_name(self._server))
                    scheduler.beat.remote(self._index, made - self._reported)
                    self._reported = made

    def _begins(self, clients: Sequence[int]) -> None:
        if self._watched and ray.get(self._keeper().begins.remote(self._index, clients)) >= SEEN:
            raise ResourceError(verdict(clients))

    def _keeper(self) -> Any:
        try:
            return ray.get_actor(self._server)
        except ValueError:  # Ray raises it for an unknown name
            raise LostError("the server died") from None

    def open(self, opened: None = None) -> None:
        """Begins the server's run; discards everything from the previous one.

        Args:
            opened: The result of the server's `open`, for which this call must wait.
        """
        self._watched, self._reported = False, 0
        self._host = None  # frees the previous run's memory first
        self._host = Started(f"worker {self._index}", self._make)

    def join(self, watched: bool) -> dict[str, str]:
        """Begins a run that is under way; one call, since Ray may reorder several.

        Args:
            watched: See `watch`.

        Returns:
            See `describe`.
        """
        self.open()
        if watched:
            self.watch()
        return self.describe()

    def _make(self) -> Host:
        from rayfl.engine.host import Host

        received: tuple[UserCode, PlanBox] = ray.get(self._keeper().given.remote())
        code, whole = received
        code.make_importable()
        run = ray.get(whole[0])
        self._beats_every_s = min(BEATS_EVERY_S, run.scenario.resources.watchdog_s / 2)
        return Host(self._index, run, self._begins, self._memory)

    @property
    def _opened(self) -> Host:
        assert self._host is not None
        return self._host.get()

    def describe(self) -> dict[str, str]:
        return self._opened.describe() | {"node": ray.util.get_node_ip_address()}

    def invoke(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the host."""
        host = self._opened
        self._memory.copied()  # Ray has serialised what the last call returned
        return getattr(host, method)(*arguments)
