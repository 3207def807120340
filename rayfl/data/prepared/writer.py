"""`rayfl data prepare`: writes a partitioned data set to a folder, fragment by fragment, in bounded memory.

A preparation that was killed goes on with the fragments that are whole.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayfl.config.data import Data
from rayfl.config.section import Named
from rayfl.data.dataset import Samples
from rayfl.data.formats.scratch import arrays_in
from rayfl.data.indexed_rows import selected
from rayfl.data.inputs import Fields, Pieces, Ragged, Rendered, kind_of, named_parts, spaced
from rayfl.data.partition.split import PARTITIONERS
from rayfl.data.prepared.arrow_columns import column_of
from rayfl.data.prepared.manifest import INDEX, MANIFEST, Column, Manifest, StoredFile, StoredSet
from rayfl.data.prepared.progress import PROGRESS, Progress, changed
from rayfl.data.prepared.reader import INDEX_COLUMNS
from rayfl.data.prepared.unwritten import Unwritten, WriteFragments, one_by_one
from rayfl.data.store import ShardStore, split_store
from rayfl.errors import DataError
from rayfl.files import as_json, atomic_write, reading

FRAGMENT_BYTES = 2**28
BLOCK_BYTES = 2**23
"""Of the inputs that are in memory at a time: a record batch."""

UNFINISHED = re.compile(r"\.[\w-]+\.(arrow|npy|json|jsonl)\.[0-9a-f]+|ray\.log")
"""Names that `atomic_write` gives to files which are not whole yet, and Ray's messages."""


@dataclass(frozen=True)
class PreparedSet:
    """A set to write.

    Attributes:
        samples: Its samples.
        rows: Their numbers in the order to write; None for the order that they have.
        bounds: [fragments + 1] int64, where each fragment begins in that order.
    """

    samples: Samples
    rows: np.ndarray | None
    bounds: np.ndarray

    @property
    def fragments(self) -> int:
        """Number of fragments."""
        return len(self.bounds) - 1

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """The numbers of some rows in the order to write."""
        return np.arange(start, stop) if self.rows is None else self.rows[start:stop]


def prepare(
    config: Data,
    seed: int,
    data_dir: Path,
    cache_dir: Path,
    folder: Path,
    say: Callable[[str], None] = print,
    write: WriteFragments = one_by_one,
) -> Manifest:
    """Loads data, partitions it, and writes it to a folder.

    What is drawn or chosen within a run (held-out shares, normalisation, augmentation, batches) is left to the run.

    Args:
        config: The data section of a scenario.
        seed: The seed of the data.
        data_dir: See `build_store`.
        cache_dir: See `build_store`.
        folder: A folder that is new, empty, or left by an interrupted preparation of the same data.
        say: Is told of every fragment.
        write: Writes the fragments, in this process or elsewhere.

    Returns:
        The manifest.

    Raises:
        DataError: The data cannot be prepared, it changed, the disk is too small, or the folder holds something else.
    """
    if config.name == "prepared":
        raise DataError("data.name: 'prepared' is prepared already; name the source")
    _check_folder(folder)
    chosen = config.model_copy(update={"test_share": None, "validation_share": None, "server_share": None})
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    with arrays_in(folder):
        store = split_store(chosen, seed, data_dir, cache_dir, every_client=True)
    before = _stamps(store)
    sets = _sets(store)
    columns, by_name = _columns(store.train), isinstance(store.train.x, Fields)
    facts = _facts(config, seed, store) | {
        "columns": [column.model_dump() for column in columns],
        "by_name": by_name,
    }
    plan = {"facts": facts, "bounds": {name: one.bounds.tolist() for name, one in sets.items()}}
    progress = Progress.of(folder, plan, str(store.provenance.digest))
    _check_room(folder, sets, columns, progress)
    places = {
        name: [f"{name}-{number:05}.arrow" for number in range(len(one.bounds) - 1)] for name, one in sets.items()
    }
    missing = (
        _unwritten(one, number, place, columns)
        for name, one in sets.items()
        for number, place in enumerate(places[name])
        if place not in progress.fragments
    )
    with closing(write(folder, missing)) as whole:
        for fragment in whole:
            progress.add(fragment)
            say(f"wrote {folder / fragment.file}, {fragment.bytes / 2**20:,.1f} MiB")
    done = {
        name: StoredSet(
            labels=_write_labels(folder, name, one), fragments=tuple(map(progress.fragments.__getitem__, places[name]))
        )
        for name, one in sets.items()
    }
    if _stamps(store) != before:
        raise changed(folder)
    index = _write_index(folder, store, sets["train"].bounds)
    content = facts | {"index": index.model_dump(), "sets": {name: one.model_dump() for name, one in done.items()}}
    with reading(folder / PROGRESS, "as the notes of a preparation"):  # which describe fragments that were kept
        manifest = Manifest.model_validate_json(json.dumps(content))
    _remove_unfinished(folder)
    with atomic_write(folder / MANIFEST) as temporary:
        temporary.write_text(as_json(manifest.model_dump(mode="json")), encoding="utf-8")
    (folder / PROGRESS).unlink()
    return manifest


def _remove_unfinished(folder: Path) -> None:
    """Removes what processes left that were killed while they wrote."""
    for unfinished in folder.iterdir():
        if UNFINISHED.fullmatch(unfinished.name):
            unfinished.unlink()


def _check_folder(folder: Path) -> None:
    if (folder / MANIFEST).exists() and not (folder / PROGRESS).exists():
        raise DataError(f"{folder}: already holds prepared data; name another folder, or remove this one")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is not a folder; name another")
    if folder.exists() and any(folder.iterdir()) and not (folder / PROGRESS).exists():
        raise DataError(f"{folder}: is not empty, and holds no preparation to go on with; name another folder")


def _facts(config: Data, seed: int, store: ShardStore) -> dict[str, Any]:
    default = Named(name="natural" if store.client_names is not None else "iid")
    partition = PARTITIONERS.resolve(config.partition or default, "data.partition")
    return {
        "format": "rayfl prepared data, version 1",
        "name": store.name,
        "source": store.provenance.source,
        "description": store.provenance.description,
        "digest": store.provenance.digest,
        "seed": seed,
        "partition": partition.model_dump(mode="json"),
        "clients": store.num_clients,
        "num_classes": store.num_classes,
        "chosen": list(store.chosen),
        "names": store.client_names is not None,
        "test_by_client": store.test_shards is not None,
    }


def _sets(store: ShardStore) -> dict[str, PreparedSet]:
    if store.test_shards is not None and store.test_shards.offsets[-1] != len(store.test):
        raise DataError(
            f"{store.name}: {len(store.test) - store.test_shards.offsets[-1]} test samples are of classes that no "
            "client trains on, which prepared data cannot hold; choose more clients per class"
        )
    shards = store.train_shards
    rows = None if store.client_names is not None else shards.rows
    sets = {"train": PreparedSet(store.train, rows, _bounds(store.train, shards.offsets))}
    others = {"test": store.test, **{name: held.samples for name, held in store.held_out.items()}}
    for name, samples in others.items():
        sets[name] = PreparedSet(samples, None, _bounds(samples, np.arange(len(samples) + 1)))
    return sets


def _columns(samples: Samples) -> tuple[Column, ...]:
    if isinstance(samples.x, Rendered):
        raise DataError(f"data.name: images ({kind_of(samples.x)}) are rendered for every batch; use the source itself")
    return tuple(column_of(name, part) for name, part in named_parts(samples.x).items())


def _bounds(samples: Samples, offsets: np.ndarray) -> np.ndarray:
    """Where fragments begin, as rows: at the first row of a client; a client may make a fragment larger."""
    most = max(1, int(FRAGMENT_BYTES / _row_bytes(samples)))
    bounds, client = [0], 0
    while client < len(offsets) - 1:
        after = int(np.searchsorted(offsets, offsets[client] + most, side="right")) - 1
        client = max(after, client + 1)
        bounds.append(int(offsets[client]))
    return np.array(bounds)


def _row_bytes(samples: Samples) -> float:
    """Bytes of a row of the inputs, for those of different lengths a mean."""
    total = 0.0
    for part in named_parts(samples.x).values():
        if isinstance(part, Pieces):
            mean = _mean_length(part)
            total += 8 + mean * max(1, int(np.prod(part.inner_shape))) * part.dtype.itemsize
        else:
            total += int(np.prod(part.shape[1:], dtype=np.int64)) * part.dtype.itemsize
    return max(total, 1.0)


def _mean_length(part: Pieces) -> float:
    if isinstance(part, Ragged):
        return float(part.lengths.mean())
    return float(np.mean([len(piece) for piece in part[np.array(spaced(len(part)))]]))


def _check_room(folder: Path, sets: Mapping[str, PreparedSet], columns: Sequence[Column], progress: Progress) -> None:
    needed = sum(len(one.samples) * _row_bytes(one.samples) + one.samples.y.nbytes for one in sets.values())
    needed -= sum(fragment.bytes for fragment in progress.fragments.values())
    free = shutil.disk_usage(folder).free
    if needed * 1.02 > free:
        raise DataError(
            f"{folder}: the prepared data takes {needed / 2**30:.3g} GiB, but only {free / 2**30:.3g} GiB of the disk "
            "are free; free some, or name a folder on another disk"
        )


def _unwritten(one: PreparedSet, number: int, place: str, columns: Sequence[Column]) -> Unwritten:
    rows = one.numbers(*one.bounds[number : number + 2].tolist())
    at_once = max(1, int(BLOCK_BYTES / _row_bytes(one.samples)))
    return Unwritten(place, selected(one.samples.x, rows), columns, at_once)


def _write_labels(folder: Path, name: str, one: PreparedSet) -> StoredFile:
    place, y = f"{name}-labels.npy", one.samples.y
    at_once = max(1, BLOCK_BYTES // max(1, y.nbytes // len(y)))
    with atomic_write(folder / place) as temporary:
        labels = np.lib.format.open_memmap(temporary, "w+", y.dtype, y.shape)
        for start in range(0, len(y), at_once):
            labels[start : start + at_once] = y[one.numbers(start, min(len(y), start + at_once))]
        labels.flush()
        return StoredFile.of(temporary, place)


def _write_index(folder: Path, store: ShardStore, bounds: np.ndarray) -> StoredFile:
    offsets, tests = store.train_shards.offsets, store.test_shards
    fragment = np.searchsorted(bounds, offsets[:-1], side="right") - 1
    test_rows = np.zeros(store.num_clients, np.int64) if tests is None else tests.sizes
    numbers = (fragment, offsets[:-1] - bounds[fragment], store.train_shards.sizes, test_rows)
    columns = {name: pa.array(one.astype(np.uint32)) for name, one in zip(INDEX_COLUMNS, numbers, strict=True)}
    if (names := store.client_names) is not None:
        ends, text = np.concatenate([[0], names.ends]).astype(np.int64), np.ascontiguousarray(names.text)
        columns["name"] = pa.LargeStringArray.from_buffers(len(names), pa.py_buffer(ends), pa.py_buffer(text))
    with atomic_write(folder / INDEX) as temporary:
        table = pa.table(columns)
        with pa.ipc.new_file(str(temporary), table.schema) as writer:
            writer.write_table(table)
        return StoredFile.of(temporary, INDEX)


def _stamps(store: ShardStore) -> list[tuple[str, int, int]]:
    """Size and time of change of the files that the source was read from."""
    files = (Path(path) for path, _ in store.provenance.files)
    return [(str(file), stat.st_size, stat.st_mtime_ns) for file in files if file.exists() for stat in [file.stat()]]
