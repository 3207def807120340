"""Any exception from reading a damaged file becomes one error that names the file."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rayfl.cli.figures import main as compare
from rayfl.data.files import read_file
from rayfl.data.formats.parquet import read_table
from rayfl.data.sources import fashion_mnist
from rayfl.data.sources import own_files as npz_file
from rayfl.data.sources import own_files as parquet_folder
from rayfl.engine.state.state_store import DamagedStateError
from rayfl.errors import DataError, RayflError, ResourceError
from rayfl.files import read_json_object, reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.status import read_status


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("digest"), "x.bin: cannot be read as X, truncated or corrupt? (it has no 'digest')"),
        (MemoryError(), "x.bin: cannot be read as X, truncated or corrupt? (MemoryError)"),
        (RecursionError("too deep"), "x.bin: cannot be read as X, truncated or corrupt? (too deep)"),
        (zipfile.BadZipFile("no\n zip"), "x.bin: cannot be read as X, truncated or corrupt? (no zip)"),
        (struct.error("4 bytes"), "x.bin: cannot be read as X, truncated or corrupt? (4 bytes)"),
        (OSError("bad image"), "x.bin: cannot be read as X, truncated or corrupt? (bad image)"),
        (FileNotFoundError(2, "No such file or directory"), "x.bin: cannot be read as X (No such file or directory)"),
    ],
)
def test_every_exception_becomes_one_that_names_the_file(raised: Exception, said: str) -> None:
    with (
        pytest.raises(DamagedStateError, match=f"^{re.escape(said)}$") as caught,
        reading("x.bin", "as X", DamagedStateError),
    ):
        raise raised
    assert caught.value.__cause__ is raised


def test_errors_of_rayfl_and_interruptions_pass() -> None:
    for passing in (ResourceError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(passing)) as caught, reading("x.bin"):
            raise passing
        assert caught.value is passing


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_only_json_objects_are_accepted(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json: cannot be read as JSON"):
        read_json_object(tmp_path / "x.json")


@pytest.mark.parametrize(
    "content", [b'{"stat', b"{}", b'{"status": 3}', b'{"status": "running", "process": {}}', b"\xff"]
)
def test_a_damaged_status_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_bytes(content)
    with pytest.raises(ResourceError, match=re.escape(str(tmp_path / "status.json"))):
        read_status(tmp_path)


def test_damaged_metrics_and_environments_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round": 1, "phase": "\xff"}\n')
    (tmp_path / "environment.json").write_text('{"packages": {}}')
    (tmp_path / "scenario.toml").write_text('name = "x"')
    (tmp_path / "status.json").write_text('{"status": "finished"}')
    reads: list[Callable[[Path], object]] = [lambda run: RunArchive(run).metrics, lambda run: RunArchive(run).code]
    for read in reads:
        with pytest.raises(ResourceError, match=re.escape(str(tmp_path))):
            read(tmp_path)
    assert compare([str(tmp_path)], "rayfl compare") == 1
    assert "metrics.jsonl: cannot be read" in capsys.readouterr().err


def test_a_line_of_metrics_ends_where_its_row_does(tmp_path: Path) -> None:
    """JSON leaves other line separators of Unicode in its texts."""
    row = {"round": 1, "phase": "one\u2028two\x85"}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert RunArchive(tmp_path).rows == [row]


def test_a_small_file_that_unpacks_to_gigabytes_is_rejected(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    header = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (200_000, 28, 28))
    packed = io.BytesIO()
    with gzip.open(packed, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(200):
            file.write(bytes(1000 * 28 * 28))
    (raw / "train-images-idx3-ubyte.gz").write_bytes(packed.getvalue())
    with pytest.raises(
        DataError, match=r"idx3-ubyte\.gz: unpacks to more than the largest file of Fashion-MNIST, 47040016 bytes"
    ):
        fashion_mnist.load("files", tmp_path, tmp_path, 0)


def test_arrays_that_unpack_to_more_than_the_memory_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "x.npz", train_x=np.zeros(2**20))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2**22))
    with pytest.raises(DataError, match=r"x\.npz: unpacks to 0\.00781 GiB, but only 0\.00391 GiB of memory are free"):
        npz_file.load_npz_file("files", tmp_path / "x.npz")


def test_images_in_tables_are_of_formats_that_run_nothing(tmp_path: Path) -> None:
    """Pillow hands EPS to Ghostscript."""
    written = io.BytesIO()
    Image.new("RGB", (4, 4)).save(written, format="EPS")
    pq.write_table(pa.table({"image": [written.getvalue()] * 4, "label": [0, 1, 0, 1]}), tmp_path / "x.parquet")
    with pytest.raises(RayflError, match=r"column 'image', row 0: cannot be read as an image"):
        parquet_folder.load_parquet_folder("files", 0, tmp_path, "image", "label")


def test_a_device_is_no_file_to_read() -> None:
    """It could be read without end."""
    with pytest.raises(DataError, match=r"^/dev/zero: is not a regular file; name one$"):
        read_file(Path("/dev/zero"))
    with pytest.raises(DataError, match="is not a regular file"):
        read_table(Path("/dev/zero"), pa.schema([]))
