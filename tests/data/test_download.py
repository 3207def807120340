"""The download command, against a local hub that serves the real format."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rayfl.data import download
from rayfl.data import download as femnist_hub
from rayfl.data.sources import cifar, fashion_mnist, femnist
from rayfl.errors import DataError

LISTING = "/api/datasets/flwrlabs/femnist/tree/main/data"
FILE = "data/train-00000-of-00001.parquet"
CONTENT = f"/datasets/flwrlabs/femnist/resolve/main/{FILE}"


def _images(rows: int) -> np.ndarray:
    images = np.full((rows, 28, 28), 255, np.uint8)
    images[:, 8:20, 8:20] = np.random.default_rng(0).integers(0, 256, (rows, 12, 12))
    return images


def _file(image: np.ndarray, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, kind)
    return out.getvalue()


def _hub_table(images: np.ndarray, writers: list[str], labels: list[int], kind: str = "PNG") -> bytes:
    columns = {
        "image": pa.array(
            [{"bytes": _file(image, kind), "path": None} for image in images],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
        "writer_id": pa.array(writers),
        "hsf_id": pa.array([0] * len(writers), pa.int64()),
        "character": pa.array(labels, pa.int64()),
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


WRITERS = ["f0001_02"] * 20 + ["f0000_14"] * 2 + ["f0009_01"] + ["f0001_02"] * 10
LABELS = [row % 62 for row in range(len(WRITERS))]
TABLE = _hub_table(_images(len(WRITERS)), WRITERS, LABELS)


def _listing(sha256: str, size: int) -> bytes:
    folder = {"type": "directory", "path": "data/old", "size": 0, "oid": "1"}
    readme = {"type": "file", "path": "data/README.md", "size": 3, "oid": "2"}
    lfs = {"oid": sha256, "size": size, "pointerSize": 134}
    return json.dumps([folder, readme, {"type": "file", "path": FILE, "size": size, "oid": "3", "lfs": lfs}]).encode()


class Hub(ThreadingHTTPServer):
    """Serves `pages`, a mapping from path to content; other paths are not found."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.pages: dict[str, bytes] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"

    def serve_femnist(self, table: bytes) -> None:
        self.pages = {LISTING: _listing(hashlib.sha256(table).hexdigest(), len(table)), CONTENT: table}


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        content = self.server.pages.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> str:
    """A URL without a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_femnist_is_downloaded_checked_and_prepared(hub: Hub, tmp_path: Path) -> None:
    hub.serve_femnist(TABLE)
    said = "\n".join(download.download_femnist(tmp_path, hub.url))
    target = tmp_path / "femnist" / "femnist.parquet"
    assert f"checked flwrlabs/femnist/{FILE}, {len(TABLE)} bytes, sha256 {hashlib.sha256(TABLE).hexdigest()}" in said
    assert "split 90 % / 10 % per writer" in said
    assert f"wrote {target}: 2 writers, 28 train and 4 test images" in said
    assert hashlib.sha256(target.read_bytes()).hexdigest() in said

    dataset = femnist.load("files", tmp_path, tmp_path / "cache", 0)
    assert dataset.natural is not None
    assert dataset.natural.names == ("f0000_14", "f0001_02"), "a writer with one image cannot be split"
    assert dataset.natural.train.sizes.tolist() == [1, 27]
    assert dataset.natural.test is not None
    assert dataset.natural.test.sizes.tolist() == [1, 3]
    rows = {image.tobytes(): label for image, label in zip(_images(len(WRITERS)), LABELS, strict=True)}
    images = np.concatenate([dataset.train.x, dataset.test.x])
    labels = np.concatenate([dataset.train.y, dataset.test.y])
    assert [rows[image.tobytes()] for image in images] == labels.tolist()
    assert len({image.tobytes() for image in images}) == 32


def test_the_split_is_the_same_every_time(hub: Hub, tmp_path: Path) -> None:
    hub.serve_femnist(TABLE)
    for folder in ("a", "b"):
        list(download.download_femnist(tmp_path / folder, hub.url))
    contents = [(tmp_path / folder / "femnist" / "femnist.parquet").read_bytes() for folder in ("a", "b")]
    assert contents[0] == contents[1]


def test_a_digest_other_than_the_one_of_the_hub_raises(hub: Hub, tmp_path: Path) -> None:
    hub.serve_femnist(TABLE)
    hub.pages[CONTENT] = TABLE[:-1] + b"x"
    stated = hashlib.sha256(TABLE).hexdigest()
    with pytest.raises(DataError, match=f"{FILE}: its sha256 is [0-9a-f]+, but the hub lists {stated}; try again"):
        list(download.download_femnist(tmp_path, hub.url))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("listing", [b"<html>", b"[]", b'{"error": "x"}', _listing("short", 1)])
def test_hub_that_lists_something_else_is_named(hub: Hub, tmp_path: Path, listing: bytes) -> None:
    hub.pages = {LISTING: listing}
    with pytest.raises(
        DataError, match=rf"{hub.url}{LISTING}: (does not list files|lists no Parquet files).*by hand: "
    ):
        list(download.download_femnist(tmp_path, hub.url))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"no table", "is not a table of image, writer_id and character as expected"),
        (_hub_table(_images(2), ["a", "a"], [0, 62]), r"has labels outside 0\.\.61"),
        (_hub_table(255 - _images(2), ["a", "a"], [0, 1]), "images are bright on black, but FEMNIST in LEAF is dark"),
        (_hub_table(np.full((2, 9, 9), 255, np.uint8), ["a", "a"], [0, 1]), "is not a table of image, writer_id and"),
        (_hub_table(_images(2), ["a", "a"], [0, 1], "BMP"), "is not a table of image, writer_id and"),
    ],
)
def test_hub_table_of_another_kind_is_named(hub: Hub, tmp_path: Path, table: bytes, message: str) -> None:
    hub.serve_femnist(table)
    with pytest.raises(DataError, match=f"flwrlabs/femnist/{FILE}: {message}"):
        list(download.download_femnist(tmp_path, hub.url))


def test_table_without_a_writer_of_two_images_raises(hub: Hub, tmp_path: Path) -> None:
    hub.serve_femnist(_hub_table(_images(2), ["a", "b"], [0, 1]))
    with pytest.raises(DataError, match="flwrlabs/femnist: no writer has two images"):
        list(download.download_femnist(tmp_path, hub.url))


def test_without_network_one_sentence_says_how_to_get_femnist_by_hand(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download.download_femnist, "__defaults__", (nobody,))
    assert download.main(["femnist", "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: cannot download {nobody}{LISTING} (")
    assert "by hand: run this command on a machine with network access and copy femnist/femnist.parquet" in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_file_that_the_hub_does_not_have_is_named(hub: Hub, tmp_path: Path) -> None:
    hub.serve_femnist(TABLE)
    del hub.pages[CONTENT]
    with pytest.raises(DataError, match=rf"cannot download {hub.url}{CONTENT} \(HTTP Error 404.*by hand: "):
        list(download.download_femnist(tmp_path, hub.url))


def test_without_network_one_sentence_says_how_to_get_fashion_mnist_by_hand(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.mirrors", [f"{nobody}/"])
    assert download.main(["fashion_mnist", "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    raw = tmp_path / "fashion-mnist" / "FashionMNIST" / "raw"
    assert "error: cannot download Fashion-MNIST (" in error
    assert "by hand: put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz" in error
    assert error.endswith(f"into {raw}\n")


def test_fashion_mnist_is_downloaded_where_its_source_looks(
    hub: Hub, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = data_dir / "fashion-mnist" / "FashionMNIST" / "raw"
    hub.pages = {f"/{file.name}": file.read_bytes() for file in raw.glob("*.gz")}
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.mirrors", [f"{hub.url}/"])
    assert download.main(["fashion_mnist", "--data-dir", str(tmp_path)]) == 0
    assert "torchvision checked the md5 sums" in capsys.readouterr().out
    assert len(fashion_mnist.load("files", tmp_path, tmp_path, 0).train) == 60000


@pytest.fixture
def cifar_archive() -> bytes:
    """A small python version of CIFAR-100."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in ("train", "test"):
            batch = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [3, 4]}
            content = pickle.dumps(batch, protocol=3)
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_cifar_is_downloaded_where_its_source_looks(
    hub: Hub,
    cifar_archive: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.pages = {"/cifar.tar.gz": cifar_archive}
    monkeypatch.setattr("torchvision.datasets.CIFAR100.url", f"{hub.url}/cifar.tar.gz")
    monkeypatch.setattr("torchvision.datasets.CIFAR100.tgz_md5", hashlib.md5(cifar_archive).hexdigest())
    assert download.main(["cifar100", "--data-dir", str(tmp_path)]) == 0
    folder = tmp_path / "cifar100" / "cifar-100-python"
    assert f"wrote {folder} (torchvision checked the md5 sum)\n" in capsys.readouterr().out
    assert list((tmp_path / "cifar100").iterdir()) == [folder], "the archive stays behind"
    assert cifar.load_cifar100("files", tmp_path, tmp_path, 0).train.y.tolist() == [3, 4]


def test_a_wrong_md5_sum_of_cifar_raises(
    hub: Hub,
    cifar_archive: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.pages = {"/cifar.tar.gz": cifar_archive}
    monkeypatch.setattr("torchvision.datasets.CIFAR10.url", f"{hub.url}/cifar.tar.gz")
    assert download.main(["cifar10", "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "error: cannot download cifar10 (File not found or corrupted.); by hand: unpack cifar-10-python" in error
    assert error.endswith(f"into {tmp_path / 'cifar10'}\n")


def test_the_default_hub_is_the_public_one() -> None:
    assert femnist_hub.HUB == "https://huggingface.co"
