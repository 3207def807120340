"""Whether the head of the cluster is there, as far as a program of the cluster can tell."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence

import ray

from rayfl.backends.ray.workers import ActorWorker, RayBackend
from rayfl.engine.backend import Ref
from rayfl.errors import ResourceError

PROBED_EVERY_S = 5.0
"""How often to see whether the cluster's head is there."""

ENDS_AFTER_S = float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", "60"))  # noqa: SIM112
"""How long after the loss of the head Ray ends every program of the cluster."""

TO_END_S = 20.0
"""How long before that a run ends by itself, to write how it ended."""


class Head:
    """The head of the cluster (its control service), without which Ray ends every program after a minute.

    Args:
        reach: Connects to it, or raises OSError.
        most_s: How long it may be out of reach, since one that is replicated comes back.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        reach: Callable[[], None],
        most_s: float = ENDS_AFTER_S - TO_END_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reach, self._most_s, self._clock = reach, most_s, clock
        self._probed = self._seen = clock()

    def check(self) -> None:
        """Sees every few seconds whether it is there; raises what `is_there` raises."""
        if self._clock() - self._probed >= PROBED_EVERY_S:
            self.is_there()

    def is_there(self) -> bool:
        """Whether it can be reached; to be asked before each of Ray's calls to it, which block without it.

        Raises:
            ResourceError: It has been out of reach for so long that Ray is about to end this program.
        """
        error = self._reached()
        self._probed = self._clock()
        if error is None:
            self._seen = self._probed
        elif self._probed - self._seen > self._most_s:
            raise ResourceError(f"the head of the Ray cluster is lost ({error}), and with it all processes of the run")
        return error is None

    def _reached(self) -> OSError | None:
        try:
            self._reach()
        except OSError as error:
            return error
        return None


def reach_head() -> None:
    """Connects to the head of the cluster that this program is attached to, or raises OSError."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=PROBED_EVERY_S).close()


class WithHead(RayBackend):
    """Waits for results while the cluster has a head; see `Head.check`.

    Args:
        scheduler: The scheduler.
        head: The head.
        look: Called every few seconds without a result.
    """

    def __init__(self, scheduler: ActorWorker, head: Head, look: Callable[[], None]) -> None:
        super().__init__([], scheduler)
        self._head, self._look = head, look

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> Sequence[Ref]:
        deadline = time.monotonic() + timeout_s
        while True:
            self._head.check()
            seconds_left = deadline - time.monotonic()
            done = super().wait(refs, max(0.0, min(seconds_left, PROBED_EVERY_S)))
            if done:
                return done
            self._look()
            if seconds_left <= PROBED_EVERY_S:
                return done
