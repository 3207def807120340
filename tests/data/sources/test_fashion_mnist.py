"""Fashion-MNIST: IDX files with or without gzip, checked, or a stand-in that is named."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.sources import fashion_mnist
from rayfl.errors import DataError

pytestmark = pytest.mark.usefixtures("few_writers")

PLACES = ("fashion-mnist/FashionMNIST/raw", "FashionMNIST/raw")
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def _arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 256, (20, 28, 28)),
        np.arange(20) % 10,
        rng.integers(0, 256, (10, 28, 28)),
        np.arange(10),
    ]


def _write(folder: Path, suffix: str = ".gz") -> None:
    folder.mkdir(parents=True)
    for part, array in zip(PARTS, _arrays(), strict=True):
        content = _idx(array)
        (folder / f"{part}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def _load(tmp_path: Path, source: Literal["auto", "files"] = "files") -> Dataset:
    return fashion_mnist.load(source, tmp_path / "data", tmp_path / "cache", 0)


@pytest.mark.parametrize("source", ["auto", "files"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("place", PLACES)
def test_idx_files_are_read_from_both_layouts_with_and_without_gzip(
    tmp_path: Path, place: str, suffix: str, source: Literal["auto", "files"]
) -> None:
    folder = tmp_path / "data" / place
    _write(folder, suffix)
    dataset = _load(tmp_path, source)
    train_x, train_y, test_x, test_y = _arrays()
    np.testing.assert_array_equal(dataset.train.x, train_x[..., None])
    np.testing.assert_array_equal(dataset.test.x, test_x[..., None])
    np.testing.assert_array_equal(dataset.train.y, train_y)
    np.testing.assert_array_equal(dataset.test.y, test_y)
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.dtype == np.int64
    assert dataset.num_classes == 10
    assert dataset.natural is None
    assert dataset.provenance.source == "files"
    files = [folder / f"{part}{suffix}" for part in PARTS]
    assert dataset.provenance.files == tuple(
        (str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files
    )


def test_auto_without_files_generates_digits_and_says_so(tmp_path: Path, generated: Path) -> None:
    dataset = fashion_mnist.load("auto", tmp_path / "data", generated, 0)
    assert dataset.name == "fashion_mnist"
    assert dataset.num_classes == 10
    assert dataset.natural is None
    assert 2200 < len(dataset.train) < 3200
    assert 200 < len(dataset.test) < 500
    assert sorted(set(dataset.train.y.tolist())) == list(range(10))
    assert np.median(np.asarray(dataset.train.x)) < 15, "Fashion-MNIST is bright on black"
    assert dataset.provenance.source == "generated"
    description = dataset.provenance.description
    assert description.startswith(
        "Stand-in for Fashion-MNIST (generated handwritten digits), not real data: no files in"
    )
    assert f"`python -m rayfl.data.download fashion_mnist --data-dir {tmp_path / 'data'}`" in description


def test_generated_ignores_files(tmp_path: Path, generated: Path) -> None:
    _write(tmp_path / "data" / PLACES[0])
    dataset = fashion_mnist.load("generated", tmp_path / "data", generated, 0)
    assert dataset.provenance.source == "generated"
    assert "data.source is 'generated'" in dataset.provenance.description


def test_files_never_falls_back(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        _load(tmp_path)
    message = str(raised.value)
    data = tmp_path / "data"
    assert message.startswith(f"Fashion-MNIST not found: looked in {data / PLACES[0]} and {data / PLACES[1]} for")
    assert message.endswith(f"get it with `python -m rayfl.data.download fashion_mnist --data-dir {data}`")


@pytest.mark.parametrize("missing", PARTS)
def test_one_missing_file_is_named_even_in_auto(tmp_path: Path, missing: str) -> None:
    folder = tmp_path / "data" / PLACES[0]
    _write(folder)
    (folder / f"{missing}.gz").unlink()
    with pytest.raises(
        DataError, match=f"{folder / missing}: is missing, with or without .gz, although other files exist"
    ):
        _load(tmp_path, "auto")


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_gzip_is_named(tmp_path: Path, keep: int) -> None:
    folder = tmp_path / "data" / PLACES[0]
    _write(folder)
    file = folder / f"{PARTS[0]}.gz"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=f"{file}: "):
        _load(tmp_path, "auto")


def test_corrupt_gzip_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data" / PLACES[0]
    _write(folder)
    file = folder / f"{PARTS[0]}.gz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"{file}: cannot be read, truncated or corrupt?"):
        _load(tmp_path)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        (0, b"", r"is not an IDX file of 3 dimensions \(magic 0, not 2051\)"),
        (0, _idx(np.arange(20)), r"is not an IDX file of 3 dimensions \(magic 2049, not 2051\)"),
        (0, _idx(np.zeros((20, 28, 28)))[:-1], r"has 15695 bytes, but its sizes \(20, 28, 28\) need 15696; truncated"),
        (1, _idx(np.arange(20) % 10) + b"x", r"has 29 bytes, but its sizes \(20,\) need 28; truncated or corrupt"),
        (1, _idx(np.arange(19) % 10), "has 19 labels for 20 images"),
        (1, _idx(np.full(20, 10)), "has label 10, allowed are 0 to 9"),
        (2, _idx(np.zeros((10, 32, 32))), r"images are \(32, 32\), not \(28, 28\)"),
    ],
)
def test_wrong_idx_content_is_named(tmp_path: Path, part: int, content: bytes, message: str) -> None:
    folder = tmp_path / "data" / PLACES[0]
    _write(folder, "")
    (folder / PARTS[part]).write_bytes(content)
    with pytest.raises(DataError, match=f"{folder / PARTS[part]}: {message}"):
        _load(tmp_path)


def test_empty_part_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data" / PLACES[0]
    _write(folder, "")
    (folder / PARTS[2]).write_bytes(_idx(np.zeros((0, 28, 28))))
    (folder / PARTS[3]).write_bytes(_idx(np.zeros(0)))
    with pytest.raises(DataError, match=f"{folder / PARTS[3]}: is empty"):
        _load(tmp_path)


def test_real_fashion_mnist_is_complete_and_balanced(data_dir: Path, tmp_path: Path) -> None:
    given = {"source": "files", "data_dir": data_dir, "cache_dir": tmp_path, "seed": 0, "clients": 100}
    dataset = call_with_options(fashion_mnist.load, {}, given, "data")
    assert dataset.train.x.shape == (60000, 28, 28, 1)
    assert dataset.test.x.shape == (10000, 28, 28, 1)
    assert np.bincount(dataset.train.y).tolist() == [6000] * 10
    assert np.bincount(dataset.test.y).tolist() == [1000] * 10
    assert np.median(dataset.train.x[:, 0]) == 0
    digests = dict(dataset.provenance.files)
    labels = next(digest for file, digest in digests.items() if "t10k-labels" in file)
    assert labels == "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
