"""Fashion-MNIST: 28x28 grey pictures of clothes, ten classes, no natural clients.

Xiao et al., "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
arXiv:1708.07747. Black background (0), the article bright.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Literal

import numpy as np

from rayfl.data import handwriting
from rayfl.data.dataset import Dataset, Examples, Provenance
from rayfl.errors import DataError

CLASSES = 10
_STAND_IN_WRITERS = 100
_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def load(source: Literal["auto", "files", "generated"], data_dir: Path, cache_dir: Path, seed: int) -> Dataset:
    """Fashion-MNIST from IDX files, or generated handwritten digits in its place.

    Looks in `data_dir`/fashion-mnist/FashionMNIST/raw and `data_dir`/FashionMNIST/raw, torchvision's layout,
    for files with or without `.gz`.

    source: "files" reads the files or fails; "generated" makes handwritten digits; "auto" reads the files where
        there are any and otherwise generates.

    Returns:
        x [n, 28, 28, 1] uint8, y [n] int64 in 0..9; 60000 training and 10000 test images in the real one.

    Raises:
        DataError: no files where `source` is "files", some of the four missing, or a damaged one (named).
    """
    folders = (data_dir / "fashion-mnist" / "FashionMNIST" / "raw", data_dir / "FashionMNIST" / "raw")
    get = f"get it with `python -m rayfl.data.download fashion_mnist --data-dir {data_dir}`"
    if source != "generated":
        for folder in folders:
            if any(_either(folder, part) for part in _PARTS):
                return _read(folder, get)
    if source == "files":
        places = " and ".join(str(folder) for folder in folders)
        raise DataError(f"Fashion-MNIST is not there: looked in {places} for {_PARTS[0]}(.gz) and the others; {get}")
    why = "as asked" if source == "generated" else f"no files in {folders[0]}"
    return _generated(cache_dir, seed, f"({why}); {get.replace('get it', 'get the real data')}")


def read_idx(file: Path, content: bytes, dimensions: int) -> np.ndarray:
    """The array of an IDX file of bytes: magic 0, 0, 8, dimensions, big-endian sizes, then uint8 values.

    Raises:
        DataError: another magic number, or more or fewer values than the sizes say; names the file.
    """
    header = 4 + 4 * dimensions
    magic = int.from_bytes(content[:4], "big")
    if len(content) < header or magic != 0x800 + dimensions:
        raise DataError(
            f"{file}: is not an IDX file of {dimensions} dimensions (magic {magic}, not {0x800 + dimensions})"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    expected = header + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataError(
            f"{file}: has {len(content)} bytes where its sizes {shape} need {expected}; truncated or corrupt"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _either(folder: Path, part: str) -> Path | None:
    return next((file for file in (folder / part, folder / f"{part}.gz") if file.exists()), None)


def _read(folder: Path, get: str) -> Dataset:
    digests: list[tuple[str, str]] = []
    examples = []
    for images_part, labels_part in (_PARTS[:2], _PARTS[2:]):
        images_file, images = _read_part(folder, images_part, 3, get, digests)
        labels_file, labels = _read_part(folder, labels_part, 1, get, digests)
        if images.shape[1:] != (28, 28):
            raise DataError(f"{images_file}: images are {images.shape[1:]}, not (28, 28)")
        if len(images) != len(labels):
            raise DataError(f"{labels_file}: has {len(labels)} labels for {len(images)} images")
        if not len(labels):
            raise DataError(f"{labels_file}: is empty")
        if labels.max() >= CLASSES:
            raise DataError(f"{labels_file}: has label {labels.max()}, allowed are 0 to {CLASSES - 1}")
        examples.append(Examples(images[..., None], labels.astype(np.int64)))
    train, test = examples
    provenance = Provenance("files", "Fashion-MNIST; black background (0), bright article", tuple(digests))
    return Dataset("fashion_mnist", train, test, CLASSES, provenance)


def _read_part(
    folder: Path, part: str, dimensions: int, get: str, digests: list[tuple[str, str]]
) -> tuple[Path, np.ndarray]:
    file = _either(folder, part)
    if file is None:
        raise DataError(f"{folder / part}: is missing, with or without .gz, while others are there; {get}")
    try:
        content = file.read_bytes()
        digests.append((str(file), hashlib.sha256(content).hexdigest()))
        if file.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read, truncated or corrupt? ({error})") from error
    return file, read_idx(file, content, dimensions)


def _generated(cache_dir: Path, seed: int, why: str) -> Dataset:
    digits = handwriting.load(cache_dir, seed, _STAND_IN_WRITERS, CLASSES)
    # Fashion-MNIST is bright on black.
    train, test = (Examples(255 - np.asarray(part.x), part.y) for part in (digits.train, digits.test))
    description = (
        f"NOT Fashion-MNIST but GENERATED HANDWRITTEN DIGITS standing in for it {why}. This is "
        f"{digits.provenance.description}, inverted to a black background (0) as Fashion-MNIST has"
    )
    return Dataset("fashion_mnist", train, test, CLASSES, Provenance("generated", description))
