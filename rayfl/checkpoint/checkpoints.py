"""The checkpoints in a run's folder: manifests under the number of their round, beside the states that they name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfl.durable import atomic_write
from rayfl.engine.remote_store import RemoteStore
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.state_store import DamagedStateError, FolderStore, StateStore, Stored
from rayfl.errors import RayflError, ResourceError
from rayfl.report.folder import CHECKPOINTS, STATES

if TYPE_CHECKING:
    from rayfl.lifecycle.mirror import Mirror

FORMAT = 1
"""Of manifests; a rayfl that writes another one can tell."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run goes on from.

    Attributes:
        snapshot: Of its session.
        records: What those who follow the run had seen when the snapshot was written (`Run.state`): as much, or more.
    """

    snapshot: RunSnapshot
    records: Mapping[str, Any]

    @property
    def round(self) -> int:
        """The round that the session goes on after."""
        return self.snapshot.index.round


class Checkpoints:
    """Those of one run.

    Manifests are in the run's folder, which a mirror may publish; states are beside them there, or at the mirror's URI.

    Args:
        folder: The run's own; their folder is made with the first of them.
        keep: How many of the latest stay.
        mirror: Publishes the folder, of a run at a URI.

    Attributes:
        store: Where hosts and server write their states.
    """

    def __init__(self, folder: Path, keep: int, mirror: Mirror | None = None) -> None:
        self._folder, self._keep, self._mirror = folder / CHECKPOINTS, keep, mirror
        self._dropped: set[str] = set()
        self.store: StateStore = (
            RemoteStore(mirror.remote / CHECKPOINTS / STATES) if mirror else FolderStore(self._folder / STATES)
        )

    def add(self, checkpoint: Checkpoint) -> ResourceError | None:
        """Writes the manifest of a checkpoint whose states are written, and removes those that are too many.

        Returns:
            Why some of their states stay for now, None if all are gone.

        Raises:
            ResourceError: It cannot be written.
        """
        body = json.dumps(
            {"snapshot": json.loads(checkpoint.snapshot.to_json()), "records": checkpoint.records}, allow_nan=False
        )
        manifest = {"format": FORMAT, "digest": _digest(body), "body": body}
        path = self._folder / f"round-{checkpoint.round:09d}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(manifest), encoding="utf-8")
            kept = self._drop_old()
            self._remove_unfinished()
        except OSError as error:
            raise ResourceError(f"cannot write the checkpoint '{path}': {error.strerror or error}") from None
        if self._mirror:
            self._mirror.publish()
        try:
            if kept is not None:
                # of what no manifest names, the snapshot that is being written by now may have some
                self.store.remove(self._dropped - kept)
                self._dropped.clear()
        except ResourceError as error:
            return error
        return None

    def newest_first(self) -> Iterator[Checkpoint | ResourceError]:
        """Every checkpoint, the last one first, and an error in place of each that is damaged."""
        for path in reversed(self._manifests()):
            try:
                yield _read(path)
            except ResourceError as error:
                yield error

    def newest_whole(self) -> Iterator[Checkpoint | ResourceError]:
        """The last checkpoint whose states are whole too, after an error in place of each that is not."""
        for checkpoint in self.newest_first():
            if isinstance(checkpoint, Checkpoint):
                try:
                    for stored in _states_of(checkpoint.snapshot):
                        self.store.read(stored)
                except DamagedStateError as error:
                    checkpoint = ResourceError(f"the checkpoint of round {checkpoint.round} cannot be used: {error}")
            yield checkpoint
            if isinstance(checkpoint, Checkpoint):
                return

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._manifests())

    def sweep(self) -> None:
        """Removes what no manifest names, such as states of a snapshot that was never complete; while no host is there.

        Raises:
            ResourceError: It cannot be removed.
        """
        named = _named(self._manifests())
        if named is not None:
            self.store.remove([place for place in self.store.places() if place not in named])

    def _manifests(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.json"))

    def _drop_old(self) -> set[str] | None:
        """Removes old manifests.

        Returns:
            The states that the others name; None if that cannot be told, since one of them cannot be read, and then
            nothing is removed.
        """
        manifests = self._manifests()
        kept = _named(manifests[-self._keep :])
        if kept is not None:
            for path in manifests[: -self._keep]:
                self._dropped |= _named([path]) or set()
                path.unlink()
        return kept

    def _remove_unfinished(self) -> None:
        """Removes what writers that were killed have left; those of the checkpoint under way are younger."""
        settled = self._manifests()[-self._keep :][0].stat().st_mtime
        for unfinished in self._folder.rglob(".*"):
            with suppress(FileNotFoundError):  # one that is finished just now
                if unfinished.stat().st_mtime < settled:
                    unfinished.unlink()


def _named(manifests: Sequence[Path]) -> set[str] | None:
    """The states that manifests name, None if one of them cannot be read."""
    try:
        return {stored.place for path in manifests for stored in _states_of(_read(path).snapshot)}
    except ResourceError:
        return None  # it is told to whoever goes on from it


def _read(path: Path) -> Checkpoint:
    """Reads a manifest.

    Raises:
        ResourceError: It is damaged, or of another format.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or not isinstance(body := manifest.get("body"), str):
            raise ValueError("it is not a checkpoint")
        if manifest.get("format") != FORMAT:
            raise ResourceError(
                f"'{path}' has format {manifest.get('format')}, and this rayfl reads format {FORMAT}: go on with the "
                "version of rayfl that wrote it"
            )
        if manifest.get("digest") != _digest(body):
            raise ValueError("its digest is not that of what was written")
        content = json.loads(body)
        return Checkpoint(RunSnapshot.from_json(json.dumps(content["snapshot"])), content["records"])
    except RayflError:
        raise
    except Exception as error:  # a digest says that nothing was changed, not that a rayfl wrote it
        raise ResourceError(f"the checkpoint '{path}' is damaged: {error}") from None


def _states_of(snapshot: RunSnapshot) -> Iterator[Stored]:
    yield snapshot.server.latest.stored
    yield from (state.stored for state in snapshot.server.open.values())
    yield from snapshot.server.models
    yield from (state.stored for state in snapshot.clients)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
