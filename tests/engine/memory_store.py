"""A store of states for tests on one process."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rayfl.engine.state.state_store import DamagedStateError, StateStore, Stored
from rayfl.errors import RayflError


class MemoryStore(StateStore):
    """Keeps arrays in this process, for runs whose hosts are in the same process."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def held(self, stored: Collection[Stored]) -> set[str]:
        return {one.place for one in stored if one.place in self._contents}

    def name(self, place: str) -> str:
        return f"the state at {place}"

    def places(self) -> Iterator[str]:
        return iter(tuple(self._contents))

    def remove(self, places: Collection[str]) -> None:
        for place in places:
            self._contents.pop(place, None)

    def _put(self, place: str, content: bytes) -> None:
        self._contents[place] = content

    def _take(self, place: str) -> bytes:
        if place not in self._contents:
            raise DamagedStateError(f"{self.name(place)} is missing from this store")
        return self._contents[place]

    def __reduce__(self) -> Any:
        raise RayflError("a MemoryStore cannot leave its process; use a FolderStore with workers in other processes")
