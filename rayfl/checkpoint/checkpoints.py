"""The checkpoints in a run's folder: manifests under the number of their round, beside the states that they name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfl.durable import atomic_write
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.state_store import FolderStore, Stored
from rayfl.errors import RayflError, ResourceError

FOLDER = "checkpoints"
"""Their folder in a run's own."""

FORMAT = 1
"""Of manifests; a rayfl that writes another one can tell."""

_STATES = "states"


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

    Args:
        folder: The run's own; their folder is made with the first of them.
        keep: How many of the latest stay.

    Attributes:
        store: Where hosts and server write their states.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder / FOLDER, keep
        self.store = FolderStore(self._folder / _STATES)

    def add(self, checkpoint: Checkpoint) -> None:
        """Writes the manifest of a checkpoint whose states are written, and removes those that are too many.

        Raises:
            ResourceError: It cannot be written.
        """
        body = json.dumps(
            {"snapshot": json.loads(checkpoint.snapshot.to_json()), "records": checkpoint.records}, allow_nan=False
        )
        manifest = {"format": FORMAT, "digest": _digest(body), "body": body}
        path = self._folder / f"round-{checkpoint.round:09d}.json"
        try:
            self._folder.mkdir(exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_text(json.dumps(manifest), encoding="utf-8")
            self._prune()
        except OSError as error:
            raise ResourceError(f"cannot write the checkpoint '{path}': {error.strerror or error}") from None

    def newest_first(self) -> Iterator[Checkpoint | ResourceError]:
        """Every checkpoint, the last one first, and an error in place of each that is damaged."""
        for path in reversed(self._manifests()):
            try:
                yield _read(path)
            except ResourceError as error:
                yield error

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._manifests())

    def _manifests(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.json"))

    def _prune(self) -> None:
        """Removes old manifests, the states that none of the others names, and what killed writers have left."""
        manifests = self._manifests()
        for path in manifests[: -self._keep]:
            path.unlink()
        named: set[str] = set()
        for path in manifests[-self._keep :]:
            try:
                named |= {stored.place for stored in _states_of(_read(path).snapshot)}
            except ResourceError:
                continue  # damaged, and told so when somebody goes on from it
        for state in (self._folder / _STATES).glob("*/*.safetensors"):
            if f"{state.parent.name}/{state.name}" not in named:
                state.unlink(missing_ok=True)
        settled = manifests[-self._keep :][0].stat().st_mtime
        for unfinished in self._folder.rglob(".*"):
            if unfinished.stat().st_mtime < settled:  # of a checkpoint that came before one that is whole
                unfinished.unlink(missing_ok=True)


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
