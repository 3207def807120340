"""Stores the states of a snapshot at a URI, for hosts that share no file system."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rayfl.engine.state_store import DamagedStateError, StateStore, Stored
from rayfl.remote_folder import RemoteFolder


class RemoteStore(StateStore):
    """Keeps arrays as safetensors files in a remote folder, where hosts and server write directly.

    An interrupted upload is never taken for a state, since reading checks the digest.

    Args:
        folder: The remote folder.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder

    def held(self, stored: Collection[Stored]) -> set[str]:
        """See `StateStore.held`."""
        # one listing of an object store returns a thousand files
        return {one.place for one in stored}.intersection(self.places()) if stored else set()

    def name(self, place: str) -> str:
        """See `StateStore.name`."""
        return f"'{place}' in '{self._folder}'"

    def places(self) -> Iterator[str]:
        """See `StateStore.places`."""
        return (file.path for file in self._folder.files())

    def remove(self, places: Collection[str]) -> None:
        """See `StateStore.remove`."""
        self._folder.remove(places)

    def _put(self, place: str, content: bytes) -> None:
        self._folder.write(place, content)

    def _take(self, place: str) -> bytes:
        content = self._folder.read(place)
        if content is None:
            raise DamagedStateError(f"the state {self.name(place)} is missing; was the snapshot moved without it?")
        return content
