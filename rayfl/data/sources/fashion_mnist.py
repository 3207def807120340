"""Fashion-MNIST: 28x28 grey pictures of clothes, ten classes, no natural clients.

Xiao et al., "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
arXiv:1708.07747. Black background (0), the article bright.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.files import FileDigest, read_file
from rayfl.data.generated import handwriting
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.files import reading

CLASSES = 10
MOST_BYTES = 16 + 60_000 * 28 * 28
"""Maximum unpacked size of a file; a compressed file could unpack to a thousand times its size."""

_STAND_IN_WRITERS = 100
_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def load(source: Source, data_dir: Path, cache_dir: Path, seed: int) -> Dataset:
    """Reads Fashion-MNIST from IDX files, or generates handwritten digits instead.

    Looks in `data_dir`/fashion-mnist/FashionMNIST/raw and `data_dir`/FashionMNIST/raw, the layout of torchvision, for
    files with or without `.gz`.

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten digits; "auto" reads the files if it
            finds any and otherwise generates.

    Returns:
        x [n, 28, 28, 1] uint8, y [n] int64 in 0..9; the real data has 60000 training and 10000 test images.

    Raises:
        DataError: `source` is "files" and there are none, or one of the four files is missing or damaged (named).
    """
    folders = [data_dir / "fashion-mnist" / "FashionMNIST" / "raw", data_dir / "FashionMNIST" / "raw"]
    get = f"get it with `python -m rayfl.data.download fashion_mnist --data-dir {data_dir}`"
    return files_or_generated(
        source,
        title="Fashion-MNIST",
        kind="handwritten digits",
        folders=folders,
        looked_for=f"{_PARTS[0]}(.gz) and the others",
        get=get,
        read=lambda: _read(folders, get),
        generate=lambda: _generated(cache_dir, seed),
    )


def read_idx(file: Path, content: bytes, dimensions: int) -> np.ndarray:
    """Parses an IDX file of bytes: magic 0, 0, 8, dimensions, big-endian sizes, then uint8 values.

    Raises:
        DataError: The magic number differs, or the number of values does not match the sizes; names the file.
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
            f"{file}: has {len(content)} bytes, but its sizes {shape} need {expected}; truncated or corrupt"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _either(folder: Path, part: str) -> Path | None:
    return next((file for file in (folder / part, folder / f"{part}.gz") if file.exists()), None)


def _read(folders: Sequence[Path], get: str) -> Dataset | None:
    folder = next((folder for folder in folders if any(_either(folder, part) for part in _PARTS)), None)
    if folder is None:
        return None
    digests: list[FileDigest] = []
    samples = []
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
        samples.append(Samples(images[..., None], labels.astype(np.int64)))
    train, test = samples
    provenance = Provenance("files", "Fashion-MNIST; black background (0), bright article", tuple(digests))
    return Dataset("fashion_mnist", train, test, CLASSES, provenance)


def _read_part(
    folder: Path, part: str, dimensions: int, get: str, digests: list[FileDigest]
) -> tuple[Path, np.ndarray]:
    file = _either(folder, part)
    if file is None:
        raise DataError(f"{folder / part}: is missing, with or without .gz, although other files exist; {get}")
    content, digest = read_file(file)
    digests.append(digest)
    if file.suffix == ".gz":
        with reading(file), gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DataError(f"{file}: unpacks to more than the largest file of Fashion-MNIST, {MOST_BYTES} bytes")
    return file, read_idx(file, content, dimensions)


def _generated(cache_dir: Path, seed: int) -> Dataset:
    digits = handwriting.load(cache_dir, seed, _STAND_IN_WRITERS, CLASSES)
    # Fashion-MNIST is bright on black.
    train, test = (Samples(255 - np.asarray(part.x), part.y) for part in (digits.train, digits.test))
    description = f"{digits.provenance.description}, inverted to a black background (0) like Fashion-MNIST"
    return Dataset("fashion_mnist", train, test, CLASSES, Provenance("generated", description))
