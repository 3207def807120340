"""An S3-compatible server on this machine, which can be told to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import localbucket
import pytest

BUCKET = "runs-of-tests"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "name-of-the-tests", "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests"}
FULL = localbucket.S3Error(HTTPStatus.FORBIDDEN, "QuotaExceeded", "The bucket is full.")
DENIED = localbucket.S3Error(HTTPStatus.FORBIDDEN, "AccessDenied", "Access Denied")


@dataclass
class ObjectStore:
    """The server.

    Attributes:
        folder: Where the bucket's objects are, as files.
        port: On the loopback interface.
        refuses: By what a key holds, the answer to requests that change it; `""` is in every key.
    """

    folder: Path
    port: int
    refuses: dict[str, Any] = field(default_factory=dict)

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&allow_delayed_open=true"


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Serves a folder with an empty bucket, to whoever has the tests' name."""
    (folder / BUCKET).mkdir()
    store = ObjectStore(folder / BUCKET, 0)

    class Handler(localbucket.S3Handler):  # type: ignore[misc]
        data_root = folder

        def log_message(self, format: str, *arguments: object) -> None:
            return

        def _dispatch(self, action: Any) -> None:
            super()._dispatch(lambda bucket, key: self._answer(action, bucket, key))

        def _answer(self, action: Any, bucket: str, key: str) -> None:
            if CREDENTIALS["AWS_ACCESS_KEY_ID"] not in self.headers.get("Authorization", ""):
                raise DENIED
            for part, error in store.refuses.items():
                if self.command in ("PUT", "POST") and part in key:
                    self._read_body()
                    raise error
            if self.command == "PUT" and key.endswith("/"):  # pyarrow marks folders that may be empty by now
                self._read_body()
                self._send(HTTPStatus.OK, headers={"ETag": '"0"'})
                return
            action(bucket, key)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (CREDENTIALS | {"AWS_EC2_METADATA_DISABLED": "true"}).items():
                patch.setenv(name, value)
            yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
