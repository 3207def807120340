"""The checkpoints in a run's folder: manifests, named by round, and the states that they refer to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import DamagedStateError, FolderStore, RemoteStore, StateStore, Stored
from rayfl.errors import RayflError, ResourceError
from rayfl.files import atomic_write, relative
from rayfl.runs.folder import CHECKPOINTS, STATES

if TYPE_CHECKING:
    from rayfl.runs.working_folder import Mirror

FORMAT = 5
"""Version of the manifest format."""

UNFINISHED_S = 600
"""Age from which a temporary file is one of a killed writer."""


class _OtherFormatError(ResourceError):
    """Another version of rayfl wrote a manifest."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """The state that a run continues from.

    Attributes:
        snapshot: The session's snapshot.
        records: The run's state when the snapshot was written (`Run.state`), of the same or a later round.
    """

    snapshot: RunSnapshot
    records: Mapping[str, Any]

    @property
    def round(self) -> int:
        """The round after which the session continues."""
        return self.snapshot.index.round


class Checkpoints:
    """The checkpoints of one run.

    Manifests are in the run's folder, which a mirror may publish. States are beside them, or at the mirror's URI.

    Args:
        folder: The run's folder; the first checkpoint creates a folder in it.
        keep: Number of latest checkpoints to keep.
        mirror: Publishes the folder of a run at a URI.

    Attributes:
        store: Where hosts and server write their states.
    """

    def __init__(self, folder: Path, keep: int, mirror: Mirror | None = None) -> None:
        self._folder, self._keep, self._mirror = folder / CHECKPOINTS, keep, mirror
        self._dropped: set[str] = set()
        self.store: StateStore = (
            RemoteStore(mirror.remote / CHECKPOINTS / STATES) if mirror else FolderStore(self._folder / STATES)
        )

    def add(self, checkpoint: StoredCheckpoint) -> ResourceError | None:
        """Writes the manifest of a checkpoint whose states are written, and removes the oldest checkpoints.

        Returns:
            Why some of the old states could not be removed; None if all were.

        Raises:
            ResourceError: The manifest cannot be written.
        """
        body = json.dumps({"snapshot": json.loads(checkpoint.snapshot.to_json()), "records": checkpoint.records})
        manifest = {"format": FORMAT, "digest": _digest(body), "body": body}
        path = self._folder / f"round-{checkpoint.round:09d}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(manifest), encoding="utf-8")
            referenced = self._drop_old()
            self._remove_unfinished(path.stat().st_mtime)
        except OSError as error:
            raise ResourceError(f"cannot write the checkpoint '{path}': {error.strerror or error}") from None
        if self._mirror:
            self._mirror.publish()
        try:
            if referenced is not None:
                # not all states without a manifest: a snapshot that is being written may already have some
                self.store.remove(self._dropped - referenced)
                self._dropped.clear()
        except ResourceError as error:
            return error
        return None

    def newest_first(self) -> Iterator[StoredCheckpoint | ResourceError]:
        """All checkpoints, latest first, with an error in place of each damaged one.

        Raises:
            ResourceError: Another version of rayfl wrote one; to continue before it would undo what that version did.
        """
        for path in reversed(self._manifests()):
            try:
                yield _read(path)
            except _OtherFormatError:
                raise
            except ResourceError as error:
                yield error

    def newest_whole(self) -> Iterator[StoredCheckpoint | ResourceError]:
        """The latest checkpoint with intact states, preceded by an error for each later, damaged one."""
        for checkpoint in self.newest_first():
            if isinstance(checkpoint, StoredCheckpoint):
                try:
                    for stored in _states_of(checkpoint.snapshot):
                        self.store.read(stored)
                except DamagedStateError as error:
                    checkpoint = ResourceError(f"the checkpoint of round {checkpoint.round} cannot be used: {error}")
            yield checkpoint
            if isinstance(checkpoint, StoredCheckpoint):
                return

    def any(self) -> bool:
        """Whether there is any checkpoint."""
        return bool(self._manifests())

    def sweep(self) -> None:
        """Removes states that no manifest names, such as those of incomplete snapshots. Call while no host is running.

        Raises:
            ResourceError: They cannot be removed.
        """
        named = _named(self._manifests())
        if named is not None:
            self.store.remove([place for place in self.store.places() if place not in named])

    def _manifests(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.json"))

    def _drop_old(self) -> set[str] | None:
        """Removes old manifests.

        Returns:
            The states that the remaining manifests name. None if one of these cannot be read; then nothing is removed.
        """
        manifests = self._manifests()
        referenced = _named(manifests[-self._keep :])
        if referenced is not None:
            for path in manifests[: -self._keep]:
                self._dropped |= _named([path]) or set()
                path.unlink()
        return referenced

    def _remove_unfinished(self, now: float) -> None:
        """Removes temporary files of killed writers; hosts may be writing the next snapshot already.

        Args:
            now: In seconds since the epoch, by the clock of the folder's file system.
        """
        for unfinished in (*self._folder.glob(".*"), *(self._folder / STATES).glob(".*")):
            with suppress(FileNotFoundError):  # it was just completed
                if unfinished.stat().st_mtime < now - UNFINISHED_S:
                    unfinished.unlink()


def _named(manifests: Sequence[Path]) -> set[str] | None:
    """The states that manifests name; None if one of the manifests cannot be read."""
    try:
        return {stored.place for path in manifests for stored in _states_of(_read(path).snapshot)}
    except ResourceError:
        return None  # resuming from it reports the error


def _read(path: Path) -> StoredCheckpoint:
    """Reads a manifest.

    Raises:
        ResourceError: The manifest is damaged or has another format.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or not isinstance(format := manifest.get("format"), int):
            raise ValueError("it is not a checkpoint")
        if format != FORMAT:
            raise _OtherFormatError(
                f"'{path}' has format {format}, but this version of rayfl reads format {FORMAT}: resume with the "
                "version that wrote it"
            )
        if not isinstance(body := manifest.get("body"), str):
            raise ValueError("it is not a checkpoint")
        if manifest.get("digest") != _digest(body):
            raise ValueError("its digest does not match its content")
        content = json.loads(body)
        snapshot = RunSnapshot.from_json(json.dumps(content["snapshot"]))
        for stored in _states_of(snapshot):
            relative(stored.place, f"the checkpoint '{path}' is damaged", ResourceError)
        return StoredCheckpoint(snapshot, content["records"])
    except RayflError:
        raise
    except Exception as error:  # a digest shows that the content is unchanged, not that rayfl wrote it
        raise ResourceError(f"the checkpoint '{path}' is damaged: {error}") from None


def _states_of(snapshot: RunSnapshot) -> Iterator[Stored]:
    yield from snapshot.server.states
    for part in snapshot.clients:
        yield part.index
        yield from part.segments


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
