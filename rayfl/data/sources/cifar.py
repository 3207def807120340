"""CIFAR-10 and CIFAR-100: 32x32 colour photographs, no natural clients.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. CIFAR-100 has 100 fine classes in 20
coarse ones.

A file of the original distributions is a batch of the "python version" (a pickle) or "binary version". Reading a pickle
can run arbitrary code. Here it cannot: the few names in the real files become inert records, any other name is an
error, and the pixels are read from the records as bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.files import WHOLE, FileDigest, read_file
from rayfl.data.formats.parquet import class_labels, fixed_bytes, in_test, only_parquet, read_table
from rayfl.data.generated import digits
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError
from rayfl.files import reading

PIXELS = 3 * 32 * 32


class _Array:
    """The state of a pickled numpy array: (version, shape, dtype, Fortran order, bytes)."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype:
    """The state of a pickled numpy dtype: its name."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order and the like, which do not apply to bytes."""


class _Subtype:
    """Replaces numpy.ndarray, which the real files name but which is not needed."""


_INERT = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Subtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _INERT:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which CIFAR's files do not")
        return _INERT[module_name, global_name]


def read_pickle(file: Path, content: bytes, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 of a batch of the python version.

    Args:
        label_key: `labels`, or for CIFAR-100 `fine_labels` or `coarse_labels`.

    Raises:
        DataError: The file is damaged, names anything but numpy arrays, or does not hold a batch; names it.
    """
    with reading(file, "as a pickle"):
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    batch = {_text(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    data, labels = batch.get("data"), batch.get(label_key)
    match data:
        case _Array(state=(_, (int(n), int(width)), _Dtype(name=b"u1" | "u1"), False, bytes(pixels))):
            as_expected = width == PIXELS and len(pixels) == n * width
        case _:
            as_expected = False
    if not as_expected or not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{file}: needs 'data', uint8 [n, {PIXELS}], and '{label_key}', a list of integers")
    return np.frombuffer(pixels, np.uint8).reshape(n, 3, 32, 32), np.array(labels, np.int64)


def read_binary(file: Path, content: bytes, label_bytes: int, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32] uint8 and labels [n] int64 of a file of the binary version.

    A record has `label_bytes` labels (CIFAR-10 one, CIFAR-100 two: coarse, fine), of which `label` is the index to
    read, followed by the image.

    Raises:
        DataError: The file does not hold a whole number of records; names it.
    """
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(f"{file}: has {len(content)} bytes, not a multiple of {record}; truncated or corrupt")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label].astype(np.int64)


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def load_cifar10(source: Source, data_dir: Path, cache_dir: Path, seed: int) -> Dataset:
    """Reads CIFAR-10 from files, or generates coloured digits instead.

    Looks in `data_dir`/cifar10 and `data_dir` for cifar-10-batches-py (the python version, as unpacked by torchvision)
    and cifar-10-batches-bin (the binary version), then for one Parquet file `data_dir`/cifar10/cifar10*.parquet
    with the columns `image` (3072 bytes, channel by channel), `label` int16 and `split` ("train" or "test").

    Args:
        source: "files" reads the files or fails; "generated" makes handwritten digits of many colours; "auto" reads the
            files if it finds any and otherwise generates.

    Returns:
        x [n, 32, 32, 3] uint8, y [n] int64 in 0..9; the full set has 50000 training and 10000 test images.

    Raises:
        DataError: `source` is "files" and there are none, or a file is missing or damaged (named).
    """
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    version = _Version(
        name="cifar10",
        title="CIFAR-10",
        classes=10,
        python=_Folder("cifar-10-batches-py", tuple(batches), ("test_batch",)),
        binary=_Folder("cifar-10-batches-bin", tuple(f"{batch}.bin" for batch in batches), ("test_batch.bin",)),
        pickle_key="labels",
        binary_labels=(1, 0),
        column="label",
    )
    return _load(version, source, data_dir, cache_dir, seed)


def load_cifar100(
    source: Source, data_dir: Path, cache_dir: Path, seed: int, labels: Literal["fine", "coarse"] = "fine"
) -> Dataset:
    """Reads CIFAR-100 from files, or generates coloured digits instead.

    Looks in `data_dir`/cifar100 and `data_dir` for cifar-100-python and cifar-100-binary, then for one Parquet file
    `data_dir`/cifar100/cifar100*.parquet, as for CIFAR-10, with the fine label in `label` and the coarse one in
    `coarse_label`.

    Args:
        source: As for CIFAR-10.
        labels: "fine" for 100 classes or "coarse" for 20; partitions by label use the same.

    Returns:
        x [n, 32, 32, 3] uint8, y [n] int64; the full set has 50000 training and 10000 test images.

    Raises:
        DataError: `source` is "files" and there are none, or a file is missing or damaged (named).
    """
    version = _Version(
        name="cifar100",
        title=f"CIFAR-100, {labels} labels",
        classes=100 if labels == "fine" else 20,
        python=_Folder("cifar-100-python", ("train",), ("test",)),
        binary=_Folder("cifar-100-binary", ("train.bin",), ("test.bin",)),
        pickle_key=f"{labels}_labels",
        binary_labels=(2, 1 if labels == "fine" else 0),
        column="label" if labels == "fine" else "coarse_label",
    )
    return _load(version, source, data_dir, cache_dir, seed)


@dataclass(frozen=True)
class _Folder:
    """A folder of the original CIFAR distribution, with its training and test files."""

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]


@dataclass(frozen=True)
class _Version:
    """A data set and the location of its labels in each format.

    Attributes:
        pickle_key: Key in the python version.
        binary_labels: Number of labels in a record of the binary version, and index of the label.
        column: Column in Parquet.
    """

    name: str
    title: str
    classes: int
    python: _Folder
    binary: _Folder
    pickle_key: str
    binary_labels: tuple[int, int]
    column: str


_WHOLE = WHOLE["cifar10"]


def _load(version: _Version, source: Source, data_dir: Path, cache_dir: Path, seed: int) -> Dataset:
    own = data_dir / version.name
    get = f"get it with `python -m rayfl.data.download {version.name} --data-dir {data_dir}`"
    return files_or_generated(
        source,
        title=version.title,
        kind="coloured digits",
        folders=[own, data_dir],
        looked_for=(f"{version.python.name}/ and {version.binary.name}/, and in the first for {version.name}*.parquet"),
        get=get,
        read=lambda: _read(version, [own, data_dir], get),
        generate=lambda: _generated(version, cache_dir, seed),
    )


def _read(version: _Version, folders: Sequence[Path], get: str) -> Dataset | None:
    for where in folders:
        if (where / version.python.name).is_dir():
            return _from_batches(version, version.python, where, get)
        if (where / version.binary.name).is_dir():
            return _from_batches(version, version.binary, where, _BY_HAND)
    parquet = only_parquet(folders[0], version.name)
    return None if parquet is None else _from_parquet(version, parquet)


def _generated(version: _Version, cache_dir: Path, seed: int) -> Dataset:
    train, test = digits.generate_coloured(cache_dir, seed, 10 if version.name == "cifar10" else 100, side=32)
    if version.classes == 20:
        train, test = (Samples(part.x, part.y // 5) for part in (train, test))
    description = (
        f"Handwritten digits of {digits.COLOURED_WRITERS} writers, seed {seed}; {_CLASSES_ARE[version.classes]}"
    )
    return Dataset(version.name, train, test, version.classes, Provenance("generated", description))


_BY_HAND = "get the binary version again from www.cs.toronto.edu/~kriz/cifar.html"

_CLASSES_ARE = {
    10: "a class is a digit, of any colour",
    100: "a class is a digit in one of ten colours",
    20: "a class is a digit in one of two halves of the ten colours",
}


def _from_batches(version: _Version, folder: _Folder, where: Path, get: str) -> Dataset:
    digests: list[FileDigest] = []
    label_bytes, label = version.binary_labels
    read: Callable[[Path, bytes], tuple[np.ndarray, np.ndarray]] = (
        partial(read_pickle, label_key=version.pickle_key)
        if folder is version.python
        else partial(read_binary, label_bytes=label_bytes, label=label)
    )
    parts = []
    for names in (folder.train, folder.test):
        batches = []
        for name in names:
            file = where / folder.name / name
            if not file.exists():
                raise DataError(f"{file}: is missing, although its folder exists; {get}")
            content, digest = read_file(file)
            digests.append(digest)
            images, labels = read(file, content)
            if len(images) != len(labels) or not len(labels):
                raise DataError(f"{file}: has {len(labels)} labels for {len(images)} images")
            if labels.min() < 0 or labels.max() >= version.classes:
                raise DataError(
                    f"{file}: labels run from {labels.min()} to {labels.max()}, allowed are 0 to {version.classes - 1}"
                )
            batches.append((images, labels))
        images = np.concatenate([images for images, _ in batches])
        parts.append(Samples(_channels_last(images), np.concatenate([labels for _, labels in batches])))
    train, test = parts
    return _dataset(version, train, test, f"{folder.name}/", tuple(digests))


def _from_parquet(version: _Version, file: Path) -> Dataset:
    content, digest = read_file(file)
    schema = pa.schema([("image", pa.binary(PIXELS)), (version.column, pa.int16()), ("split", pa.string())])
    table = read_table(file, schema, content)
    labels, is_test = class_labels(table, file, version.classes, version.column), in_test(table, file)
    images = fixed_bytes(table["image"]).reshape(-1, 3, 32, 32)
    train, test = (Samples(_channels_last(images[rows]), labels[rows]) for rows in (~is_test, is_test))
    return _dataset(version, train, test, file.name, (digest,))


def _channels_last(images: np.ndarray) -> np.ndarray:
    """Converts [n, 3, 32, 32] to [n, 32, 32, 3], also in memory."""
    out = np.empty((len(images), 32, 32, 3), np.uint8)
    for channel in range(3):  # five times faster than copying a transposed view
        out[..., channel] = images[:, channel]
    return out


def _dataset(version: _Version, train: Samples, test: Samples, kind: str, files: tuple[FileDigest, ...]) -> Dataset:
    counts = f"{len(train)} training and {len(test)} test images"
    if (len(train), len(test)) != _WHOLE:
        counts = f"a subset: {counts} of the {_WHOLE[0]} and {_WHOLE[1]}"
    provenance = Provenance("files", f"{version.title}, {counts}, from {kind}", files)
    return Dataset(version.name, train, test, version.classes, provenance)
