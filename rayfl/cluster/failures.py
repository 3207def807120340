"""Translates Ray's failures into rayfl's errors, with the user's traceback if any; Ray's own text goes elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping

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

from rayfl.cluster.ray_log import NAME
from rayfl.errors import LostError, RayflError, ResourceError

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
    told = _told(cause, names)
    told.add_note(str(cause))
    return told


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
    found = re.search(
        r"Memory on the node \(IP: ([^,]+),.*?was ([\d.]+\w*B)(?: used)? / ([\d.]+\w*B)", str(cause), re.S
    )
    where = (
        f"node {found[1]} ran out of memory ({found[2]} of {found[3]} in use)"
        if found
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
