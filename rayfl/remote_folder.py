"""Folders at URIs: object stores and distributed file systems, through pyarrow, which is loaded on first use."""

from __future__ import annotations

import os
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
from urllib.parse import urlsplit, urlunsplit

from rayfl.errors import ResourceError, ScenarioError
from rayfl.files import relative
from rayfl.passwords import has_password, without_passwords

WRITTEN_WHOLE = ("abfs", "gcs", "s3")
"""File systems in which a file appears only when it is complete; elsewhere it is renamed at the end."""

REQUESTS_AT_ONCE = 16

_PROBE = ".rayfl-"
_COLLAPSED = re.compile("[a-z][a-z0-9+]*:/")


@dataclass(frozen=True)
class RemoteFile:
    """A file in a remote folder.

    Attributes:
        path: Path relative to the folder.
        modified: Time of the last write, in seconds since 1970, by the clock of the file system.
    """

    path: str
    modified: float


@dataclass(frozen=True)
class RemoteFolder:
    """A folder at a URI, which need not exist.

    Cheap to send: every process opens it again, with the credentials that pyarrow finds in its environment.

    Attributes:
        uri: `s3://bucket/runs?region=eu-west-1`, `gs://...`, `hdfs://...`, `file:///...`. Options of the file system
            are in its query.

    Raises:
        ScenarioError: The URI contains a secret, which would be printed and recorded.
    """

    uri: str

    def __post_init__(self) -> None:
        if has_password(self.uri):
            raise ScenarioError(
                f"'{without_passwords(self.uri)}': a URI is printed and recorded, so it must not contain credentials: "
                f"set them where {self.uri.partition('://')[0]} looks for them instead, such as AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            )

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> RemoteFolder:
        parts = urlsplit(self.uri)
        return RemoteFolder(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def read(self, path: str) -> bytes | None:
        """The content of a file, None if there is none.

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
        """Writes a file, or replaces one; it appears only when it is complete.

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
                if files.type_name == "hdfs" and _is_file(files, place):  # HDFS does not rename onto a file
                    files.delete_file(place)
                files.move(temporary, place)
            except BaseException:
                if _is_file(files, temporary):
                    files.delete_file(temporary)
                raise

    def holds(self, path: str) -> bool:
        """Whether the folder has a file.

        Raises:
            ResourceError: The file system does not answer.
        """
        with self._opened("look for", path) as (files, place):
            return _is_file(files, place)

    def files(self) -> list[RemoteFile]:
        """All files in the folder and below it; none if it does not exist.

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
        """Removes files; ignores those that do not exist.

        Raises:
            ResourceError: One of them cannot be removed.
        """
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="rayfl-remove") as threads:
            for _ in threads.map(self._remove, paths):
                pass

    def check_writable(self) -> None:
        """Writes and removes a temporary file as a check.

        Raises:
            ResourceError: The folder is not writable.
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
        """The file system, and the place of a path of this folder in it; reports its errors as ResourceError."""
        if path:
            relative(path, f"'{self.uri}'", ResourceError)
        try:
            files, root = _file_system(self.uri)
            yield files, f"{root}/{path}".rstrip("/")
        except (OSError, ValueError, NotImplementedError) as error:  # errors of pyarrow derive from these
            cause = " ".join(str(error).strip().partition("\n")[0].split()).rstrip(".")
            place = f"{path}' in '{self.uri}" if path and not path.startswith(_PROBE) else self.uri
            raise ResourceError(f"cannot {verb} '{place}': {cause}") from None


def located(place: str | Path) -> Path | RemoteFolder:
    """An absolute path, or a remote folder if the text is a URI.

    Raises:
        ScenarioError: It is a Path made from a URI, or a URI of one slash.
    """
    if isinstance(place, str) and "://" in place:
        return RemoteFolder(place)
    if _COLLAPSED.match(str(place)):
        written = str(place).replace(":/", "://", 1)
        raise ScenarioError(f"'{place}': write '{written}', in Python as a string (a Path cannot represent a URI)")
    return Path(os.path.expanduser(place)).absolute()  # noqa: PTH111 - no error for a user that does not exist


def local(place: str | Path, key: str, why: str) -> Path:
    """An absolute path.

    Args:
        place: A path, or possibly a URI.
        key: Name of the argument, for the message.
        why: Why it cannot be a URI, and what to do instead, for the message.

    Raises:
        ScenarioError: It is a URI.
    """
    resolved = located(place)
    if isinstance(resolved, RemoteFolder):
        raise ScenarioError(f"{key}: '{resolved}' is a URI, {why}")
    return resolved


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
