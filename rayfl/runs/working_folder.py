"""The temporary folder in which a run at a URI works, and the mirror that publishes it there.

The mirror publishes whole changed files, in an order that stays consistent if interrupted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Collection
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import uuid4

from rich.console import Console

from rayfl.console import print_line, print_warning
from rayfl.errors import ResourceError
from rayfl.files import inside
from rayfl.remote_folder import RemoteFolder
from rayfl.runs.centralised import SUFFIX
from rayfl.runs.folder import CHECKPOINTS, CLIENT_PARTS, METRICS_FILE, SCENARIO_FILE, STATES, no_run_in

if TYPE_CHECKING:
    from rayfl.runs.result import Result


PUBLISHED_EVERY_S = 5.0
"""How often to look for changes."""

PUBLISHING_SHARE = 0.1
"""Share of time for publishing between checkpoints, since the growing metrics are published whole each time."""

LONGEST_PAUSE_S = 60.0
"""Upper limit of the pause, since publishing also shows that the run is alive."""

LAST_PAUSES_S = (1.0, 5.0, 15.0)
"""Pauses between attempts to publish a run's final files."""

_Version = tuple[int, int]


class Mirror:
    """Mirrors a local folder, except temporary files, to a remote one; a context manager that works in a thread.

    Manifests are published after all other files, so that everything they name exists. Files that were removed locally
    are removed remotely at the end. Other files in the remote folder are left alone.

    Args:
        folder: The local folder.
        remote: The remote folder.
        console: Prints a warning if publishing fails.
        published: Relative paths of files that are already the same on both sides.
    """

    def __init__(self, folder: Path, remote: RemoteFolder, console: Console, published: Collection[str] = ()) -> None:
        self._folder, self.remote, self._console = folder, remote, console
        self._marker = folder / ".mirror"
        self._marker.touch()
        versions = self._versions()
        self._published = {name: versions[name] for name in published}
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._keep_up, name="rayfl mirror", daemon=True)

    def __enter__(self) -> Mirror:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def publish(self) -> None:
        """Publishes all changes.

        Raises:
            ResourceError: Some changes cannot be published.
        """
        with self._lock:
            while not self._publish_once():
                pass

    def publish_last(self) -> None:
        """As `publish`, with several attempts."""
        for pause_s in LAST_PAUSES_S:
            try:
                self.publish()
            except ResourceError:
                time.sleep(pause_s)
            else:
                return
        self.publish()

    def _publish_once(self) -> bool:
        """Publishes changes once.

        Returns:
            False if a file was removed meanwhile, so that the files found may be inconsistent; otherwise True.
        """
        self._check_folder()
        versions = self._versions()
        for name in sorted(versions, key=_comes_last):
            if self._published.get(name) == versions[name]:
                continue
            try:
                with (self._folder / name).open("rb") as content:
                    self.remote.write(name, content)
            except FileNotFoundError:
                return False
            self._published[name] = versions[name]
        gone = self._published.keys() - versions.keys()
        self.remote.remove(gone)
        for name in gone:
            del self._published[name]
        return True

    def _check_folder(self) -> None:
        """Forgets what was published if the folder was recreated, so that missing files are not removed remotely."""
        if self._marker.exists():
            return
        if not self._folder.exists():
            raise ResourceError(f"cannot publish '{self._folder}': it was removed while the run was writing to it")
        self._published.clear()
        self._marker.touch()

    def _versions(self) -> dict[str, _Version]:
        """Modification time and size of every file to publish, which identify its version."""
        versions = {}
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder)
            temporary = name.name.startswith(".") and not name.match(CLIENT_PARTS)
            if temporary or not path.is_file():
                continue
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            versions[name.as_posix()] = stat.st_mtime_ns, stat.st_size
        return versions

    def _keep_up(self) -> None:
        pause_s = PUBLISHED_EVERY_S
        while not self._ended.wait(pause_s):
            began = time.monotonic()
            try:
                self.publish()
            except ResourceError as error:
                if not self._failing:
                    print_warning(
                        self._console, f"{error}; the run continues, with its records in {self._folder} for now"
                    )
                self._failing, pause_s = True, min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if self._failing:
                print_line(self._console, f"the run's records are at {self.remote} again", style="yellow")
            took_s = time.monotonic() - began
            self._failing, pause_s = False, min(max(PUBLISHED_EVERY_S, took_s / PUBLISHING_SHARE), LONGEST_PAUSE_S)


def _comes_last(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parent == PurePosixPath(CHECKPOINTS)


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
                message = f"{str(failure) or 'interrupted'}; unpublished files of the run are in {self.path}; copy them"
                if error is None and isinstance(failure, ResourceError):
                    raise ResourceError(message) from None
                print_warning(self._console, message)
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
    if place.holds(METRICS_FILE) and (place.holds(SCENARIO_FILE) or place.read(METRICS_FILE)):
        raise ResourceError(f"'{place}' already has the records of a run: remove them, or choose another folder")
