"""An Arrow file that stays on disk gives the same results as arrays in memory."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayfl.config.data import Data
from rayfl.data.batches import BatchSource
from rayfl.data.formats.columns import MappedRows
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import RayflError

RNG = np.random.default_rng(0)
N = 50
IMAGES = RNG.integers(0, 256, (N, 4, 5, 3), np.uint8)
VECTORS = RNG.normal(size=(N, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, N)
SPLIT = np.where(np.arange(N) % 5 == 0, "test", "train")


def nested(values: np.ndarray) -> pa.Array:
    array = pa.array(values.ravel())
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def write(file: Path, compression: str | None = None, rows: int = 16) -> None:
    words = pa.array([[1] * (1 + row % 3) for row in range(N)])
    columns = {"image": nested(IMAGES), "vector": nested(VECTORS), "label": pa.array(LABELS), "split": pa.array(SPLIT)}
    columns["lists"] = pa.array(VECTORS.tolist(), pa.list_(pa.float32()))
    table = pa.table({**columns, "words": words, "wide": pa.array(VECTORS[:, 0].astype(np.float64))})
    with pa.ipc.new_file(str(file), table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
        writer.write_batch(pa.RecordBatch.from_pylist([], table.schema))


def store(folder: Path, inputs: str = "image", **data: Any) -> ShardStore:
    options = {"path": str(folder / "big.arrow"), "inputs": inputs, "label": "label", "split": "split"}
    tables = {"name": "arrow_file", "clients": 3, "partition": "shards", "options": options, **data}
    return build_store(Data.model_validate(tables), 0, folder, folder)


@pytest.mark.parametrize(
    ("inputs", "plain"), [("image", IMAGES), ("vector", VECTORS), ("lists", VECTORS), ("wide", VECTORS[:, 0])]
)
def test_batches_equal_those_of_arrays_in_memory(inputs: str, plain: np.ndarray, tmp_path: Path) -> None:
    write(tmp_path / "big.arrow")
    found = store(tmp_path, inputs, validation_share=0.2)
    assert isinstance(found.train.x, MappedRows)
    rows = {"train": SPLIT == "train", "test": SPLIT == "test"}
    together = np.concatenate([np.asarray(found.train.x), np.asarray(found.held_out["validation"].samples.x)])
    assert sorted(map(str, together.tolist())) == sorted(map(str, plain[rows["train"]].tolist()))
    source = BatchSource(found, torch.device("cpu"))
    order = np.array([7, 3, 20, 0])
    ((x, y),) = source.training_batches(order, 4, np.random.default_rng(0))
    expected = torch.from_numpy(np.asarray(found.train.x)[order]).float()
    assert torch.equal(x, (expected / 255).permute(0, 3, 1, 2) if inputs == "image" else expected)
    assert y.tolist() == found.train.y[order].tolist()
    of_label = {str(value.tolist()): label for value, label in zip(plain, LABELS, strict=True)}
    values = np.asarray(found.train.x)[order]
    assert [of_label[str(value.tolist())] for value in values] == y.tolist()


def test_hosts_receive_the_path_and_not_the_rows(tmp_path: Path) -> None:
    write(tmp_path / "big.arrow")
    mapped = store(tmp_path).train.x
    sent = pickle.dumps(mapped)
    assert len(sent) < mapped.rows.nbytes + 1000
    received = pickle.loads(sent)  # noqa: S301 - as Ray does between its own processes
    assert np.array_equal(received[:], mapped[:])


@pytest.mark.parametrize(
    ("inputs", "compression", "message"),
    [
        ("image", "zstd", r"column 'image' is compressed or boolean; write it uncompressed"),
        ("words", None, "column 'words' has lists of different lengths; rows that stay on disk must have one shape"),
        ("imag", None, "has no column 'imag'; did you mean 'image'"),
        ("split", None, "column 'split' is string, but must hold numbers or lists of numbers"),
    ],
)
def test_columns_that_cannot_be_mapped_are_named(
    inputs: str, compression: str | None, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "big.arrow", compression)
    with pytest.raises(RayflError, match=message):
        store(tmp_path, inputs)


def test_a_missing_damaged_or_replaced_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "big.arrow"
    with pytest.raises(RayflError, match=r"big\.arrow: cannot be read as an Arrow file"):
        store(tmp_path)
    write(file)
    mapped = store(tmp_path).train.x
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(RayflError, match=r"big\.arrow: cannot be read as an Arrow file"):
        store(tmp_path)
    other = tmp_path / "moved.arrow"
    write(other, rows=7)
    with pytest.raises(RayflError, match=r"moved\.arrow: has \d+ bytes, not \d+: it was replaced"):
        replace(mapped, file=str(other), file_bytes=3)[:1]


def test_a_file_replaced_by_one_of_the_same_size_is_read_anew_and_its_predecessor_by_what_was_loaded_from_it(
    tmp_path: Path,
) -> None:
    file, temporary = tmp_path / "big.arrow", tmp_path / "new"
    write(file)
    before = store(tmp_path, partition="iid").train.x
    temporary.write_bytes(file.read_bytes().replace(IMAGES[1].tobytes(), (255 - IMAGES[1]).tobytes()))
    assert temporary.stat().st_size == file.stat().st_size
    temporary.replace(file)
    after = store(tmp_path, partition="iid").train.x
    for mapped, first in ((before, IMAGES[1]), (after, 255 - IMAGES[1])):
        assert np.array_equal(mapped[mapped.rows == 1][0], first)  # row 1 is none of those that `reopen` compares
        mapped.reopen()


def test_a_worker_whose_file_holds_other_values_of_the_same_size_ends_before_it_trains(tmp_path: Path) -> None:
    write(tmp_path / "big.arrow")
    found = store(tmp_path)
    found.reopen()
    (tmp_path / "there").mkdir()
    of_node = tmp_path / "there" / "big.arrow"
    content = (tmp_path / "big.arrow").read_bytes()
    of_node.write_bytes(content.replace(IMAGES[0].tobytes(), (255 - IMAGES[0]).tobytes()))
    there = replace(found, train=replace(found.train, x=replace(found.train.x, file=str(of_node))))
    assert len(content) == of_node.stat().st_size
    with pytest.raises(
        RayflError, match=r"there/big\.arrow: column 'image' holds other values here than where the run"
    ):
        there.reopen()
