"""Publishes a run's working folder at a URI: changed files, each whole, in an order that any stop leaves consistent."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.text import Text

from rayfl.errors import ResourceError
from rayfl.remote_folder import RemoteFolder
from rayfl.report.folder import CHECKPOINTS, CLIENT_PARTS

EVERY_S = 5.0
"""How often changes are looked for."""

SHARE = 0.1
"""Of the time that may be spent on publishing between checkpoints: metrics grow, and go out whole each time."""

LONGEST_PAUSE_S = 60.0
"""Whatever it takes: what is published of a run also says that it is alive."""

LAST_PAUSES_S = (1.0, 5.0, 15.0)
"""Between the attempts to publish what a run leaves at its end."""

_Version = tuple[int, int]


class Mirror:
    """Keeps a remote folder as a local one is, but for temporary files; a context manager, which does so in a thread.

    A manifest is published after everything else, so all that it counts on is there before; what is gone from the local
    folder is removed last. What was in the remote folder before is left alone.

    Args:
        folder: The local one.
        remote: The remote one.
        console: Where it is said that nothing can be published at the moment.
        published: Files, from the folder on, that are the same on both sides.
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
            ResourceError: Some of them cannot be published.
        """
        with self._lock:
            while not self._publish_once():
                pass

    def publish_last(self) -> None:
        """As `publish`, and tries it some more times if it fails."""
        for pause_s in LAST_PAUSES_S:
            try:
                self.publish()
            except ResourceError:
                time.sleep(pause_s)
            else:
                return
        self.publish()

    def _publish_once(self) -> bool:
        """Whether all was published as it was found; else a file went away meanwhile, so that others may count on it no
        longer."""
        self._check_folder()
        found = self._versions()
        for name in sorted(found, key=_comes_last):
            if self._published.get(name) == found[name]:
                continue
            try:
                with (self._folder / name).open("rb") as content:
                    self.remote.write(name, content)
            except FileNotFoundError:
                return False
            self._published[name] = found[name]
        gone = self._published.keys() - found.keys()
        self.remote.remove(gone)
        for name in gone:
            del self._published[name]
        return True

    def _check_folder(self) -> None:
        """Takes nothing for gone because a folder was removed that is made again."""
        if self._marker.exists():
            return
        if not self._folder.exists():
            raise ResourceError(f"cannot publish '{self._folder}': it was removed while the run was writing to it")
        self._published.clear()
        self._marker.touch()

    def _versions(self) -> dict[str, _Version]:
        """What tells one content of a file from the next, for all that are published."""
        found = {}
        for path in self._folder.rglob("*"):
            name = path.relative_to(self._folder)
            temporary = name.name.startswith(".") and not name.match(CLIENT_PARTS)
            if temporary or not path.is_file():
                continue
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            found[name.as_posix()] = stat.st_mtime_ns, stat.st_size
        return found

    def _keep_up(self) -> None:
        pause_s = EVERY_S
        while not self._ended.wait(pause_s):
            began = time.monotonic()
            try:
                self.publish()
            except ResourceError as error:
                if not self._failing:
                    self._say(f"warning: {error}; the run goes on, with its records in {self._folder} for now")
                self._failing, pause_s = True, min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if self._failing:
                self._say(f"the run's records are at {self.remote} again")
            took_s = time.monotonic() - began
            self._failing, pause_s = False, min(max(EVERY_S, took_s / SHARE), LONGEST_PAUSE_S)

    def _say(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"), soft_wrap=True)


def _comes_last(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parent == PurePosixPath(CHECKPOINTS)
