"""The temporary folder in which a run at a URI works, and which is published there."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import uuid4

from rich.console import Console
from rich.text import Text

from rayfl.centralised import SUFFIX
from rayfl.errors import ResourceError
from rayfl.inside import inside
from rayfl.lifecycle.mirror import Mirror
from rayfl.remote_folder import RemoteFolder
from rayfl.report.folder import CHECKPOINTS, METRICS_FILE, SCENARIO_FILE, STATES, no_run_in

if TYPE_CHECKING:
    from rayfl.result import Result


class WorkingFolder:
    """A context manager; however the block ends, it publishes the run's files and then removes the folder.

    Args:
        console: Prints a warning if files cannot be published.

    Attributes:
        path: The folder.

    Raises:
        ResourceError: The folder cannot be created.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._downloaded: list[str] = []
        self._mirror: Mirror | None = None
        self._result: Result | None = None
        try:
            self.path = Path(tempfile.mkdtemp(prefix="rayfl-run-")).resolve()
        except OSError as error:
            raise ResourceError(f"a run at a URI needs a temporary folder: {error}; set TMPDIR") from None

    def download(self, remote: RemoteFolder) -> None:
        """Downloads the records and checkpoint manifests of an existing run, but no models.

        Raises:
            ResourceError: There is no run, or it cannot be read.
        """
        files = {file.path: file for file in remote.files()}
        if SCENARIO_FILE not in files:
            raise no_run_in(remote)
        for name, file in files.items():
            if name.startswith(f"{CHECKPOINTS}/{STATES}/") or name.endswith(".safetensors"):
                continue
            path = inside(self.path, name, f"'{remote}'", ResourceError)
            content = remote.read(name)
            if content is None:  # it was removed meanwhile
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                os.utime(path, (file.modified, file.modified))  # for status.json this is the run's heartbeat
            except OSError as error:
                raise ResourceError(f"cannot write '{path}': {error.strerror or error}; set TMPDIR") from None
            self._downloaded.append(name)

    def publish_at(self, remote: RemoteFolder) -> Mirror:
        """Publishes the folder from now on."""
        self._mirror = Mirror(self.path, remote, self._console, self._downloaded).__enter__()
        return self._mirror

    def lasts_as_long_as(self, result: Result) -> None:
        """Keeps the folder as long as a result exists, so that a program can read its records."""
        self._result = result

    def __enter__(self) -> WorkingFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mirror is not None:
            self._mirror.__exit__()
            try:
                self._mirror.publish_last()
            except BaseException as failure:  # also on Ctrl-C, by a user who does not want to wait
                said = f"{str(failure) or 'interrupted'}; unpublished files of the run are in {self.path}; copy them"
                if error is None and isinstance(failure, ResourceError):
                    raise ResourceError(said) from None
                self._console.print(Text(f"warning: {said}", style="yellow"), soft_wrap=True)
                if error is None:
                    raise
                return
        if self._result is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            weakref.finalize(self._result, shutil.rmtree, self.path, ignore_errors=True)


def new_place(out: RemoteFolder, name: str, is_centralised: bool) -> RemoteFolder:
    """A place for a new run, `<out>/<name>-<time>-<letters>`; unique, since names cannot be reserved at a URI.

    Args:
        out: The parent folder.
        name: The scenario's name.
        is_centralised: Whether the run is of the scenario's centralised counterpart.
    """
    return out / f"{name}{SUFFIX if is_centralised else ''}-{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


def check_holds_no_run(place: RemoteFolder) -> None:
    """Checks that records can be kept at a URI without mixing them with others.

    Raises:
        ResourceError: A run's records are there already.
    """
    if place.holds(METRICS_FILE):
        raise ResourceError(f"'{place}' already has the records of a run: remove them, or choose another folder")
