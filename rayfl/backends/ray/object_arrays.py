"""Arrays in Ray's object store: put once per connection, mapped by every process of a node, pickled as references."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from rayfl.backends.ray.private import node_stats
from rayfl.data.prepared.fragments import MappedLabels

WORTH_AN_OBJECT = 2**20
"""Bytes; smaller arrays travel with what contains them."""


class ObjectArray(np.ndarray):
    """An array whose memory is an object of the store.

    Attributes:
        reference: The object; None for a part of the array.
        connection: The connection that has put it.
    """

    reference: ray.ObjectRef[np.ndarray] | None = None
    connection: tuple[str, str] | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.reference is None:
            return np.asarray(self).__reduce_ex__(protocol)
        return ray.get, (self.reference,)


class PassedArray(ObjectArray):
    """An object of the store that also the processes which receive it pass on as a reference."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return super().__reduce_ex__(protocol) if self.reference is None else (mapped, (self.reference,))


def mapped(reference: ray.ObjectRef[np.ndarray]) -> PassedArray:
    """The array of an object, whose memory every process of a node maps."""
    array: PassedArray = ray.get(reference).view(PassedArray)
    array.reference = reference
    return array


class ObjectArrays:
    """Moves arrays into the object store; the driver then maps the object as hosts do, instead of its own copy."""

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self._connection = context.get_node_id(), context.get_job_id()
        self._moved: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def move(self, array: np.ndarray) -> np.ndarray:
        """The array as an object, unless it is small or is one already; one object for equal references."""
        if isinstance(array, MappedLabels) and array.place is not None:  # every process maps the file itself
            return array
        if array.nbytes < WORTH_AN_OBJECT or getattr(array, "connection", None) == self._connection:
            return array
        if id(array) not in self._moved:
            plain = np.asarray(array)
            reference = ray.put(plain if plain.flags.forc else np.ascontiguousarray(plain))  # others are not mapped
            moved: ObjectArray = ray.get(reference).view(ObjectArray)
            moved.reference, moved.connection = reference, self._connection
            self._moved[id(array)] = array, moved
        return self._moved[id(array)][1]


def created_bytes() -> int:
    """Bytes of all objects that the stores of the connected cluster have created so far."""
    stats = (node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False) for node in ray.nodes())
    return sum(int(of_node.store_stats.cumulative_created_bytes) for of_node in stats)
