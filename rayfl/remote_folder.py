"""Folders at URIs: object stores and distributed file systems, as pyarrow reaches them; loads pyarrow once it must."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from rayfl.errors import ResourceError, ScenarioError

WRITTEN_WHOLE = ("abfs", "gcs", "s3")
"""Kinds of file systems in which a file appears when it is complete; elsewhere it is renamed then."""

REQUESTS_AT_ONCE = 16

_PROBE = ".rayfl-"
_SECRET = re.compile("secret|token|password|key", re.IGNORECASE)
_COLLAPSED = re.compile("[a-z][a-z0-9+]*:/")


@dataclass(frozen=True)
class RemoteFile:
    """A file in a remote folder.

    Attributes:
        path: From the folder on.
        modified: When it was written, in seconds since 1970, by the clock of whoever keeps it.
    """

    path: str
    modified: float


@dataclass(frozen=True)
class RemoteFolder:
    """A folder that a URI names; it need not exist. Cheap to send: every process opens it anew, with what pyarrow finds
    in its environment for credentials.

    Attributes:
        uri: `s3://bucket/runs?region=eu-west-1`, `gs://...`, `hdfs://...`, `file:///...`. Options of the file system
            are in its query.

    Raises:
        ScenarioError: The URI holds a secret, which would be printed and written with it.
    """

    uri: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.uri)
        secret = next((name for name, _ in parse_qsl(parts.query, True) if _SECRET.search(name)), None)
        if parts.password is not None or secret:
            raise ScenarioError(
                f"'{parts.scheme}://…{parts.path}': a URI is printed and recorded, so it must hold no credentials "
                f"({secret or 'user:password@'}): leave them out, and put them where {parts.scheme} looks for them, "
                "such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> RemoteFolder:
        parts = urlsplit(self.uri)
        return RemoteFolder(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def read(self, path: str) -> bytes | None:
        """The content of a file, None where there is none.

        Raises:
            ResourceError: It cannot be read.
        """
        with self._opened("read", path) as (files, place):
            try:
                with files.open_input_stream(place) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes | BinaryIO) -> None:
        """Writes a file, which is there once it is complete, instead of any that was there.

        Raises:
            ResourceError: It cannot be written.
        """
        source = BytesIO(content) if isinstance(content, bytes) else content
        with self._opened("write", path) as (files, place):
            if files.type_name in WRITTEN_WHOLE:
                _copy(source, files, place)
                return
            parent, _, name = place.rpartition("/")
            temporary = f"{parent}/.{name}.{uuid.uuid4().hex}"
            files.create_dir(parent)
            try:
                _copy(source, files, temporary)
                if files.type_name == "hdfs" and _is_file(files, place):  # which renames onto nothing
                    files.delete_file(place)
                files.move(temporary, place)
            except BaseException:
                if _is_file(files, temporary):
                    files.delete_file(temporary)
                raise

    def holds(self, path: str) -> bool:
        """Whether there is a file.

        Raises:
            ResourceError: Nobody answers.
        """
        with self._opened("look for", path) as (files, place):
            return _is_file(files, place)

    def files(self) -> list[RemoteFile]:
        """All files in the folder and below it, none where it does not exist.

        Raises:
            ResourceError: They cannot be listed.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._opened("list", "") as (files, place):
            infos = files.get_file_info(FileSelector(place, allow_not_found=True, recursive=True))
            return [
                RemoteFile(info.path[len(place) :].lstrip("/"), info.mtime_ns / 1e9 if info.mtime_ns else 0.0)
                for info in infos
                if info.type == FileType.File
            ]

    def remove(self, paths: Collection[str]) -> None:
        """Removes files; those that are gone already are no matter.

        Raises:
            ResourceError: One of them cannot be removed.
        """
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="rayfl-remove") as threads:
            for _ in threads.map(self._remove, paths):
                pass

    def check_writable(self) -> None:
        """Writes a file for a moment.

        Raises:
            ResourceError: That cannot be done.
        """
        probe = f"{_PROBE}{uuid.uuid4().hex}"
        self.write(probe, b"rayfl checks that it can write here\n")
        self.remove([probe])

    def _remove(self, path: str) -> None:
        with self._opened("remove", path) as (files, place):
            try:
                files.delete_file(place)
            except FileNotFoundError:
                return

    @contextmanager
    def _opened(self, verb: str, path: str) -> Iterator[tuple[Any, str]]:
        """The file system, and where in it a path of this folder is; its errors in our words."""
        try:
            files, root = _file_system(self.uri)
            yield files, f"{root}/{path}".rstrip("/")
        except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are of these kinds, too
            said = " ".join(str(error).strip().partition("\n")[0].split()).rstrip(".")
            place = f"{path}' in '{self.uri}" if path and not path.startswith(_PROBE) else self.uri
            raise ResourceError(f"cannot {verb} '{place}': {said}") from None


def located(place: str | Path) -> Path | RemoteFolder:
    """An absolute path, or a remote folder where the text is a URI.

    Raises:
        ScenarioError: It is a Path that was made of a URI.
    """
    if isinstance(place, str) and "://" in place:
        return RemoteFolder(place)
    if isinstance(place, Path) and _COLLAPSED.match(str(place)):
        raise ScenarioError(f"'{place}': a Path cannot hold a URI; give it as text")
    return Path(place).absolute()


def local(place: str | Path, key: str, why: str) -> Path:
    """An absolute path.

    Args:
        place: As it was given.
        key: What it is, for the message.
        why: Why it cannot be at a URI, and what to do instead.

    Raises:
        ScenarioError: It is a URI.
    """
    found = located(place)
    if isinstance(found, RemoteFolder):
        raise ScenarioError(f"{key}: '{found}' is a URI, {why}")
    return found


def _copy(source: BinaryIO, files: Any, place: str) -> None:
    with files.open_output_stream(place) as stream:
        shutil.copyfileobj(source, stream, 1 << 24)


def _is_file(files: Any, place: str) -> bool:
    from pyarrow.fs import FileType

    return bool(files.get_file_info(place).type == FileType.File)


@lru_cache(16)
def _file_system(uri: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    files, root = FileSystem.from_uri(uri)
    return files, root.rstrip("/")
