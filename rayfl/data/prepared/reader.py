"""`data.name = "prepared"`: a folder that `rayfl data prepare` wrote; the driver reads manifest, index and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from rayfl.data.dataset import ClientNames, Dataset, Materialised, NaturalClients, OrderedShards, Provenance, Samples
from rayfl.data.inputs import Fields
from rayfl.data.prepared.fragments import FragmentPieces, FragmentRows, check_file, mapped_labels
from rayfl.data.prepared.manifest import AGAIN, MANIFEST, Manifest, read_manifest
from rayfl.errors import DataError, ScenarioError
from rayfl.files import reading

INDEX_COLUMNS = ("fragment", "first", "rows", "test_rows")
"""Of the index, uint32: where a client's training samples lie, and how many training and test samples it has."""


def load_prepared(source: Literal["auto", "files", "generated"], path: Path) -> Dataset:
    """Opens prepared data; its samples stay on disk, and hosts read those of the clients that they train.

    Args:
        path: The folder, at the same path on every node.

    Raises:
        ScenarioError: `source` is "generated".
        DataError: A file is missing, cut short or damaged, or the index does not fit the fragments (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'prepared' has nothing to generate; choose 'auto' or 'files'")
    folder = path.absolute()
    manifest, digest = read_manifest(folder)
    train, test, names = _read_index(folder, manifest)
    samples = {name: _samples(folder, digest, manifest, name) for name in manifest.sets}
    description, named = f"{manifest.description}; prepared in {path}", names is not None
    made = Materialised(str(path), manifest.made_by, manifest.clients, manifest.seed, manifest.num_classes, named)
    return Dataset(
        name=manifest.name,
        train=samples.pop("train"),
        test=samples.pop("test"),
        num_classes=manifest.num_classes,
        provenance=Provenance(manifest.source, description, ((str(folder / MANIFEST), digest),)),
        natural=NaturalClients(ClientNames.of(np.arange(len(train))) if names is None else names, train, test),
        tests=samples,
        chosen=manifest.chosen,
        materialised=made,
    )


def verify(path: Path) -> str:
    """Compares every file of a prepared folder with its digests; returns a one-line summary.

    Raises:
        DataError: A file is missing, cut short or damaged; names it.
    """
    manifest, digest = read_manifest(path)
    for stored in manifest.files:
        check_file(path, stored)
    _read_index(path, manifest)
    size = sum(stored.bytes for stored in manifest.files)
    return f"{path}: {len(manifest.files)} files with {size / 2**20:,.1f} MiB are whole, sha256 {digest}"


def _samples(folder: Path, digest: str, manifest: Manifest, name: str) -> Samples:
    rows, inputs = range(manifest.sets[name].rows), dict[str, FragmentRows | FragmentPieces]()
    for number, column in enumerate(manifest.columns):
        form = FragmentPieces if column.ragged else FragmentRows
        inputs[column.name] = form(str(folder), digest, name, number, column, rows)
    x = Fields(inputs) if manifest.by_name else inputs[""]
    return Samples(x, mapped_labels(str(folder), digest, name))


def _read_index(folder: Path, manifest: Manifest) -> tuple[OrderedShards, OrderedShards | None, ClientNames | None]:
    """The clients' training samples, their test samples, and their names, as far as there are any."""
    check_file(folder, manifest.index)
    file = folder / manifest.index.file
    with reading(file, "as an index of prepared data"), pa.memory_map(str(file)) as memory:
        table = pa.ipc.open_file(memory).read_all().combine_chunks()
        table.validate(full=True)  # otherwise invalid offsets would be followed
        if any(table.schema.field(name).type != pa.uint32() for name in INDEX_COLUMNS):
            raise ValueError("its numbers are not uint32")
        fragment, first, rows, test_rows = (table[name].to_numpy().astype(np.int64) for name in INDEX_COLUMNS)
        names = _names(table["name"]) if manifest.names else None
    if len(rows) != manifest.clients:
        raise DataError(f"{file}: has {len(rows)} clients, but the manifest {manifest.clients}; {AGAIN}")
    held = np.array([part.rows for part in manifest.sets["train"].fragments])
    offsets, starts = _offsets(rows), _offsets(held)
    known = fragment.clip(max=len(held) - 1)
    wrong = (fragment != known) | (first + rows > held[known]) | (starts[known] + first != offsets[:-1])
    if wrong.any():
        client = int(wrong.argmax())
        raise DataError(
            f"{file}: client {client} has rows {first[client]} to {first[client] + rows[client] - 1} of fragment "
            f"{fragment[client]}, which lie outside of it or are not the next; {AGAIN}"
        )
    test = _offsets(test_rows)
    expected = manifest.sets["test"].rows if manifest.test_by_client else 0
    if offsets[-1] != starts[-1] or test[-1] != expected:
        raise DataError(
            f"{file}: its clients have {offsets[-1]} training and {test[-1]} test samples, but the fragments "
            f"{starts[-1]} and {expected}; {AGAIN}"
        )
    return OrderedShards(offsets), OrderedShards(test) if manifest.test_by_client else None, names


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


def _names(column: pa.ChunkedArray) -> ClientNames:
    array = column.cast(pa.large_string()).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    _, offsets, text = array.buffers()
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
    return ClientNames(np.frombuffer(text, np.uint8)[: ends[-1]].copy(), ends[1:].copy())
