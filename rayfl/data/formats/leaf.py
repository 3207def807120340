"""Files of LEAF: the JSON of its pre-processing, and FEMNIST as one prepared Parquet file.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097. The pre-processing makes folders train/ and
test/ of JSON files with `users`, `num_samples` and `user_data`: {user: {"x": inputs, "y": labels}}; FEMNIST has 784
numbers in [0, 1] per image. As in LEAF's own reader, all files of a folder are merged, clients are the sorted user ids,
and train and test must have the same users.

Prepared Parquet holds 28x28 grey images by writer. Columns: `writer_id` string, `image` fixed-size binary of 784 bytes
(row-major uint8), `label` int16, `split` string, "train" or "test". Rows of a writer need not be adjacent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.files import FileDigest, read_file
from rayfl.data.formats.parquet import (
    class_labels,
    fixed_bytes,
    fixed_bytes_column,
    in_test,
    read_table,
    sorted_by_name,
    write_table,
)
from rayfl.errors import DataError
from rayfl.files import reading

SIDE = 28
CLASSES = 62
_SCHEMA = pa.schema(
    [
        ("writer_id", pa.string()),
        ("image", pa.binary(SIDE * SIDE)),
        ("label", pa.int16()),
        ("split", pa.string()),
    ]
)


@dataclass(frozen=True)
class WrittenImages:
    """Images and their writers.

    Attributes:
        names: The writers, sorted.
        writer: [n] int64, index into `names`.
        images: [n, 28, 28] uint8.
        labels: [n] int64, 0..61.
        is_test: [n] bool.
    """

    names: tuple[str, ...]
    writer: np.ndarray
    images: np.ndarray
    labels: np.ndarray
    is_test: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def dataset(self, name: str, num_classes: int, provenance: Provenance) -> Dataset:
        """Builds a data set whose natural clients are the writers, in sorted order."""
        parts = []
        for rows in (~self.is_test, self.is_test):
            samples = Samples(self.images[rows][..., None], self.labels[rows])
            parts.append((samples, Shards.by_owner(self.writer[rows], len(self.names))))
        (train, train_shards), (test, test_shards) = parts
        natural = NaturalClients(self.names, train_shards, test_shards)
        return Dataset(name, train, test, num_classes, provenance, natural)


def read_prepared(source: Path, content: bytes | None = None) -> WrittenImages:
    """Reads a prepared file; `content` is its content if the caller already has it.

    Raises:
        DataError: The file is missing, truncated or corrupt, or has other columns, splits or labels; names it.
    """
    table = read_table(source, _SCHEMA, content)
    names, writer = sorted_by_name(table["writer_id"])
    return WrittenImages(
        names=names,
        writer=writer,
        images=fixed_bytes(table["image"]).reshape(-1, SIDE, SIDE),
        labels=class_labels(table, source, CLASSES),
        is_test=in_test(table, source),
    )


def write_prepared(written: WrittenImages, target: Path) -> None:
    """Writes a prepared file atomically: under a temporary name, synced, then renamed.

    Raises:
        DataError: The folder cannot be written to; names the file.
    """
    writer = pa.DictionaryArray.from_arrays(
        pa.array(written.writer.astype(np.int32)), pa.array(written.names, pa.string())
    )
    split = pa.DictionaryArray.from_arrays(pa.array(written.is_test.astype(np.int32)), pa.array(["train", "test"]))
    columns = [
        writer.cast(pa.string()),
        fixed_bytes_column(written.images),
        pa.array(written.labels.astype(np.int16)),
        split.cast(pa.string()),
    ]
    write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), target)


T = TypeVar("T")


def find_leaf(folder: Path) -> Path | None:
    """`folder` or its subfolder `data`, whichever has JSON files in train/ or test/; None if neither does."""
    for candidate in (folder, folder / "data"):
        if any(next((candidate / split).glob("*.json"), None) for split in ("train", "test")):
            return candidate
    return None


@dataclass(frozen=True)
class LeafUsers(Generic[T]):
    """The contents of a LEAF folder: sorted names, and one parsed entry per name in train and in test.

    Attributes:
        files: (path, sha256 in hexadecimal) of every file.
    """

    names: tuple[str, ...]
    train: list[T]
    test: list[T]
    files: tuple[FileDigest, ...]


def read_users(folder: Path, parse: Callable[[Path, str, Any], T]) -> LeafUsers[T]:
    """All users under `folder`/train and `folder`/test; `parse(file, user, data)` parses the data of one user.

    Raises:
        DataError: A folder has no files, a file is damaged (named), or users differ between train and test.
    """
    digests: list[FileDigest] = []
    train, test = (_read_split(folder / split, parse, digests) for split in ("train", "test"))
    only = sorted(set(train) ^ set(test))
    if only:
        side = "train" if only[0] in train else "test"
        raise DataError(f"{folder}: train and test must have the same users, but '{only[0]}' is only in {side}")
    names = tuple(sorted(train))
    return LeafUsers(names, [train[name] for name in names], [test[name] for name in names], tuple(digests))


def read_leaf(folder: Path) -> tuple[WrittenImages, tuple[FileDigest, ...]]:
    """FEMNIST images under `folder`/train and `folder`/test, and (path, sha256) of every file.

    Numbers in [0, 1] become bytes by rounding x * 255; the polarity of LEAF is kept (white background).

    Raises:
        DataError: As for `read_users`.
    """
    users = read_users(folder, _images)
    counts = [[len(labels) for _, labels in split] for split in (users.train, users.test)]
    return WrittenImages(
        names=users.names,
        writer=np.concatenate([np.repeat(np.arange(len(users.names)), count) for count in counts]),
        images=np.concatenate([images for split in (users.train, users.test) for images, _ in split]),
        labels=np.concatenate([labels for split in (users.train, users.test) for _, labels in split]),
        is_test=np.repeat([False, True], [sum(count) for count in counts]),
    ), users.files


def _read_split(folder: Path, parse: Callable[[Path, str, Any], T], digests: list[FileDigest]) -> dict[str, T]:
    merged: dict[str, T] = {}
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder}: has no .json files; LEAF data needs both train/ and test/")
    for file in files:
        content, digest = read_file(file)
        digests.append(digest)
        for user, data in _user_data(file, content).items():
            if user in merged:
                raise DataError(f"{file}: user '{user}' is also in another file of {folder}")
            with reading(f"{file}: user '{user}'"):
                merged[user] = parse(file, user, data)
    return merged


def _user_data(file: Path, content: bytes) -> dict[str, Any]:
    with reading(file, "as JSON"):
        parsed = json.loads(content)
    if not isinstance(parsed, dict) or not {"users", "user_data"} <= parsed.keys():
        raise DataError(f"{file}: needs 'users' and 'user_data', as LEAF writes them")
    users, data = parsed["users"], parsed["user_data"]
    if not isinstance(data, dict) or not isinstance(users, list) or sorted(map(str, users)) != sorted(data):
        raise DataError(f"{file}: 'users' and the keys of 'user_data' differ")
    return data


def _images(file: Path, user: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 28, 28] uint8 and labels [n] int64 of one user."""
    try:
        x = np.asarray(data["x"], np.float64).reshape(-1, SIDE * SIDE)
        y = np.asarray(data["y"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: user '{user}' needs 'x' with {SIDE * SIDE} numbers per image, and 'y'") from error
    if len(x) != len(y):
        raise DataError(f"{file}: user '{user}' has {len(x)} images but {len(y)} labels")
    if not ((x >= 0) & (x <= 1)).all():
        raise DataError(f"{file}: user '{user}' has pixels outside 0..1")
    if len(y) and not (y.dtype.kind == "i" and y.min() >= 0 and y.max() < CLASSES):
        raise DataError(f"{file}: user '{user}' has labels other than integers in 0..{CLASSES - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, SIDE, SIDE), y.astype(np.int64)
