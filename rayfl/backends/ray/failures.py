"""Ray's failures as rayfl's errors, with the user's traceback if any; Ray's own text goes elsewhere.

Actor constructors store their failure (`Started`), so that rayfl reports it instead of Ray. `DeadlyClients` finds
clients that kill their host again and again; the server counts, since it outlives the hosts.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from rayfl.backends.ray.log import NAME
from rayfl.errors import LostError, RayflError, ResourceError
from rayfl.wording import their_traceback

ENDED = "its process was killed (perhaps because memory ran out), crashed in native code, or called os._exit"


def as_rayfl_error(error: RayError, names: Mapping[str, str]) -> RayflError:
    """Translates the error with which a remote call failed.

    Args:
        error: The error that `ray.get` raised.
        names: The name of each actor by its id in hexadecimal digits.

    Returns:
        rayfl's own errors as the worker raised them. Other failures become a rayfl error that carries Ray's text as a
        note, for the log (`take_ray_text`).
    """
    cause: BaseException = error
    while isinstance(cause, RayTaskError) and isinstance(cause.cause, BaseException) and cause.cause is not cause:
        cause = cause.cause
    if isinstance(cause, RayflError):
        return cause
    converted = _told(cause, names)
    converted.add_note(str(cause))
    return converted


def take_ray_text(error: RayflError) -> str:
    """Removes Ray's text from an error made by `as_rayfl_error`, and returns it."""
    notes: list[str] = getattr(error, "__notes__", [])
    text = "\n".join(notes)
    notes.clear()
    return text


def _told(cause: BaseException, names: Mapping[str, str]) -> RayflError:
    match cause:
        case RayTaskError():
            return RayflError(f"a remote call raised\n{cause}")
        case OutOfMemoryError():
            return LostError(f"a worker was killed: {_out_of_memory(cause)}; see {NAME}")
        case ObjectStoreFullError() | OutOfDiskError():
            return ResourceError(f"{_full_store(cause)}; see {NAME}")
        case ObjectLostError():
            return LostError(
                f"a node was lost, and with it the only copy of a result that cannot be recomputed; see {NAME}"
            )
        case ActorUnavailableError() | RayActorError():
            return _of_actor(cause, names.get(cause.actor_id or "", "an actor"))
        case WorkerCrashedError():
            return LostError(f"a worker died: {ENDED}; see {NAME}")
        case _:
            return RayflError(f"{type(cause).__name__}: {_last_line(cause)}; see {NAME}")


def _of_actor(cause: RayActorError, name: str) -> ResourceError:
    if isinstance(cause, ActorDiedError) and cause.actor_init_failed:
        return ResourceError(f"{name} could not start: {_last_line(cause)}; see {NAME}")
    if "node has died" in str(cause) or "node was terminated" in str(cause):
        return LostError(f"{name} died with its node; see {NAME}")
    if "running low on memory" in str(cause):
        return LostError(f"{name} was killed: {_out_of_memory(cause)}; see {NAME}")
    return LostError(f"{name} died: {ENDED}; see {NAME}")


def _out_of_memory(cause: BaseException) -> str:
    match = re.search(
        r"Memory on the node \(IP: ([^,]+),.*?was ([\d.]+\w*B)(?: used)? / ([\d.]+\w*B)", str(cause), re.S
    )
    where = (
        f"node {match[1]} ran out of memory ({match[2]} of {match[3]} in use)"
        if match
        else "its node ran out of memory"
    )
    return f"{where}; start fewer workers (resources.hosts), or use a smaller batch (local.batch_size) or data set"


def _full_store(cause: BaseException) -> str:
    """The message about a full object store; if objects could not be moved to disk either, the disk is full too."""
    stores = ", ".join(
        f"{node['Resources'].get('object_store_memory', 0) / 2**30:.3g} GiB on {node['NodeManagerAddress']}"
        for node in ray.nodes()
        if node["Alive"]
    )
    disk = ", and so is the disk it spills to" if isinstance(cause, OutOfDiskError) else ""
    return (
        f"Ray's object store ({stores}) is full{disk}: give it more memory (`ray start --object-store-memory`), "
        "free disk space, or run fewer workers (resources.hosts)"
    )


def _last_line(cause: BaseException) -> str:
    """The last line of a traceback: the exception itself."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[-1] if lines else type(cause).__name__


T = TypeVar("T")


class Started(Generic[T]):
    """The object that an actor's constructor made, or the error with which it failed.

    An exception in an actor's constructor reaches the driver as text inside Ray's own message. So constructors do not
    raise: they store the error, and the first method that needs the object raises it.
    """

    def __init__(self, what: str, make: Callable[[], T]) -> None:
        """Calls `make`.

        Args:
            what: The actor's name for the error message.
            make: Creates the object behind the actor.
        """
        self._error: RayflError | None = None
        where = f"{what} could not start on node {ray.util.get_node_ip_address()}"
        try:
            self._made = make()
        except RayflError as error:
            self._error = type(error)(f"{where}: {error}")
        except RayError as error:  # another actor that it called died
            converted = as_rayfl_error(error, {})
            self._error = type(converted)(f"{where}: {converted}")
        except BaseException as error:  # a user's code may raise anything
            message = "".join(traceback.format_exception_only(error)).strip()
            self._error = ResourceError(f"{where}: {message}\n{their_traceback(error)}")

    @property
    def is_there(self) -> bool:
        """Whether the constructor made the object."""
        return self._error is None

    def get(self) -> T:
        """Returns the object, or raises the stored error."""
        if self._error is not None:
            raise self._error
        return self._made


SEEN = 2
"""Deaths that can be attributed to a client's update. The very first cannot: hosts announce the clients that they are
about to train only after a restart or a recovery."""


class DeadlyClients:
    """Counts deaths of hosts by the clients that they were training."""

    def __init__(self) -> None:
        self._at: dict[int, Sequence[int]] = {}
        self._deaths: Counter[int] = Counter()

    def begins(self, host: int, clients: Sequence[int]) -> int:
        """Records that a host is about to train clients, and so has survived the previous ones.

        Returns:
            The most deaths in a row in the updates of any of these clients.
        """
        for client in self._at.get(host, ()):
            del self._deaths[client]
        self._at[host] = clients
        return max(self._deaths[client] for client in clients)

    def died(self, host: int) -> None:
        """Records that a host died in the update that it began last."""
        self._deaths.update(self._at.pop(host, ()))

    def deaths(self) -> dict[int, int]:
        """Deaths by client since its last completed update."""
        return dict(self._deaths)

    def add(self, deaths: Mapping[int, int]) -> None:
        """Adds the counts of an earlier attempt's server."""
        self._deaths.update(deaths)


def verdict(clients: Sequence[int]) -> str:
    """The error message about clients whose update keeps killing hosts."""
    whose = f"client {clients[0]}" if len(clients) == 1 else f"clients {', '.join(map(str, clients))}, trained at once,"
    return (
        f"{whose} killed {'its' if len(clients) == 1 else 'their'} worker process {SEEN + 1} times in a row, most "
        "likely because memory ran out: lower local.batch_size, start fewer workers (resources.hosts), give each of "
        "them more of a node (resources.cpus_per_host), or look for native code that crashes (in its data or model)"
    )
