"""The manifest of prepared data: what its files hold, where their values lie, and the digest of every chunk.

    FOLDER/manifest.json       this file; its own digest identifies the data
    FOLDER/index.arrow         per client: fragment, first row in it, training rows, test rows (4 bytes each), name
    FOLDER/train-00000.arrow   a fragment: inputs ordered by client; no client straddles two fragments
    FOLDER/train-labels.npy    the labels of a set, which every process maps

Reading needs no Arrow: a fragment is an uncompressed IPC file, and the manifest says where the values of its record
batches begin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rayfl.config.section import Named
from rayfl.data.files import read_file
from rayfl.errors import DataError
from rayfl.files import inside, reading

MANIFEST, INDEX = "manifest.json", "index.arrow"

CHUNK_BYTES = 2**22
"""What one digest covers: a process checks no more than the chunks that it reads."""

_HEX = 64

Count = Annotated[int, Field(ge=0, le=2**62)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StoredFile(_Record):
    """A file of the folder.

    Attributes:
        file: Its place in the folder.
        bytes: Its size.
        digests: The SHA-256 of its chunks of `CHUNK_BYTES`, in hexadecimal, one after the other.
    """

    file: str
    bytes: Annotated[int, Field(gt=0)]
    digests: str

    @model_validator(mode="after")
    def _a_digest_per_chunk(self) -> StoredFile:
        if len(self.digests) != _HEX * self.chunks:
            raise ValueError(f"{self.file}: {len(self.digests)} digits of digests for {self.chunks} chunks")
        return self

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.bytes // CHUNK_BYTES)

    @staticmethod
    def chunks_of(start: int, stop: int) -> range:
        """The chunks in which some bytes lie."""
        return range(start // CHUNK_BYTES, -(-stop // CHUNK_BYTES)) if stop > start else range(0)

    def check(self, path: Path, content: np.ndarray, chunk: int) -> None:
        """Compares a chunk of the file, [bytes] uint8, with its digest.

        Raises:
            DataError: It differs.
        """
        part = content[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        if hashlib.sha256(part.data).hexdigest() != self.digests[chunk * _HEX : (chunk + 1) * _HEX]:
            raise DataError(f"{path}: is damaged: bytes from {chunk * CHUNK_BYTES:,} on have another digest; {AGAIN}")

    def mapped(self, folder: Path) -> np.ndarray:
        """[bytes] uint8: the file, mapped and not yet read.

        Raises:
            DataError: It is missing or has another size, or lies outside the folder.
        """
        path = inside(folder, self.file, folder / MANIFEST, DataError)
        with reading(path):
            size = path.stat().st_size
            if size != self.bytes:
                raise DataError(f"{path}: has {size:,} bytes instead of {self.bytes:,}, cut short or replaced? {AGAIN}")
            return np.asarray(np.memmap(path, np.uint8, "r"))

    @staticmethod
    def of(path: Path, file: str) -> StoredFile:
        """Describes a file that has just been written."""
        content = np.memmap(path, np.uint8, "r")
        starts = range(0, len(content), CHUNK_BYTES)
        digests = (hashlib.sha256(content[start : start + CHUNK_BYTES].data).hexdigest() for start in starts)
        return StoredFile(file=file, bytes=len(content), digests="".join(digests))


AGAIN = "copy the folder again, or prepare it again with `rayfl data prepare`"


class Fragment(StoredFile):
    """A file with the inputs of consecutive rows.

    Attributes:
        blocks: Per record batch: its number of rows, then where the values of each column begin, in bytes; a ragged
            column has first where its int64 offsets begin.
    """

    blocks: Annotated[tuple[tuple[Count, ...], ...], Field(min_length=1)]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(block[0] for block in self.blocks)

    def check_places(self, columns: Sequence[Column]) -> None:
        """Checks that the values of every block lie in the file, as far as the manifest says.

        Raises:
            ValueError: They do not.
        """
        sizes = [size for column in columns for size in ((8, 0) if column.ragged else (column.item_bytes,))]
        more = [extra for column in columns for extra in ((8, 0) if column.ragged else (0,))]
        for rows, *starts in self.blocks:
            if len(starts) != len(sizes):
                raise ValueError(f"{self.file}: its blocks lack columns")
            places = zip(starts, sizes, more, strict=True)
            if any(start + rows * size + extra > self.bytes for start, size, extra in places):
                raise ValueError(f"{self.file}: the manifest names values outside it")


class Column(_Record):
    """An input.

    Attributes:
        name: The name of the argument of the network's `forward`; "" for a single input.
        dtype: The dtype of its values.
        shape: The shape of a row, without its first dimension if rows differ in it.
        ragged: Whether they do.
    """

    name: str
    dtype: Annotated[str, Field(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64))$")]
    shape: tuple[Count, ...]
    ragged: bool

    @property
    def item_bytes(self) -> int:
        """Bytes of a row, or of one piece of a row along its first dimension."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class StoredSet(_Record):
    """A set of samples.

    Attributes:
        labels: The file of its labels.
        fragments: The files of its inputs, in order.
    """

    labels: StoredFile
    fragments: Annotated[tuple[Fragment, ...], Field(min_length=1)]

    @property
    def rows(self) -> int:
        """Number of samples."""
        return sum(fragment.rows for fragment in self.fragments)


class Manifest(_Record):
    """All that prepared data says of itself.

    Attributes:
        format: The version of this format.
        name: Name of the data set.
        source: What the samples were before: files, arrays or generated.
        description: The same in words.
        digest: SHA-256 of the data that it was prepared from, before partitioning.
        seed: The seed of the data.
        partition: The partition that made the clients, with all options.
        clients: Number of clients.
        num_classes: Number of classes; None if labels are not classes.
        chosen: The selections of classes and owners, in words.
        names: Whether clients have names.
        test_by_client: Whether the test samples belong to clients.
        columns: The inputs.
        by_name: Whether the inputs have names.
        index: The file of the index.
        sets: The sets of samples by name.
    """

    format: Literal["rayfl prepared data, version 1"]
    name: str
    source: Literal["files", "generated", "arrays"]
    description: str
    digest: str
    seed: Count
    partition: dict[str, Any]
    clients: Annotated[int, Field(gt=0)]
    num_classes: int | None
    chosen: tuple[str, ...]
    names: bool
    test_by_client: bool
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    by_name: bool
    index: StoredFile
    sets: dict[str, StoredSet]

    @model_validator(mode="after")
    def _is_whole(self) -> Manifest:
        if not {"train", "test"} <= set(self.sets):
            raise ValueError("it has no set 'train' or 'test'")
        _ = self.made_by  # raises if it is no partition
        if not self.by_name and [column.name for column in self.columns] != [""]:
            raise ValueError("a single input has a name")
        for fragment in (fragment for one in self.sets.values() for fragment in one.fragments):
            fragment.check_places(self.columns)
        return self

    @property
    def made_by(self) -> Named:
        """The partition that made the clients."""
        return Named.model_validate(self.partition)

    @property
    def files(self) -> Sequence[StoredFile]:
        """All files but the manifest."""
        parts = [part for one in self.sets.values() for part in (one.labels, *one.fragments)]
        return [self.index, *parts]


def read_manifest(folder: Path, digest: str = "") -> tuple[Manifest, str]:
    """Reads the manifest of a folder.

    Args:
        folder: The folder.
        digest: The SHA-256 that it must have, if known.

    Returns:
        The manifest and its SHA-256, which identifies the data.

    Raises:
        DataError: It is missing or damaged, or was replaced since the run started.
    """
    file = folder / MANIFEST
    if not file.is_file():
        raise DataError(f"{folder}: has no {MANIFEST}; finish `rayfl data prepare`, or name a prepared folder")
    content, (_, found) = read_file(file)
    if digest not in ("", found):
        raise DataError(f"{file}: is another than where the run started; give every node the same prepared folder")
    with reading(file, "as a manifest of prepared data"):
        return Manifest.model_validate_json(content), found
