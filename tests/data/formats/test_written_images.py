"""Prepared Parquet: round trips, and detection of damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.data.dataset import Provenance
from rayfl.data.formats.leaf import WrittenImages, read_prepared, write_prepared
from rayfl.errors import DataError


def _written(rows: int = 40) -> WrittenImages:
    rng = np.random.default_rng(0)
    return WrittenImages(
        names=("a", "b", "c"),
        writer=np.arange(rows) % 3,
        images=rng.integers(0, 256, (rows, 28, 28), np.uint8),
        labels=rng.integers(0, 62, rows),
        is_test=np.arange(rows) % 5 == 4,
    )


def _table(rows: int = 6) -> dict[str, pa.Array]:
    return {
        "writer_id": pa.array(["b", "a"] * (rows // 2), pa.string()),
        "image": pa.array([bytes([row]) * 784 for row in range(rows)], pa.binary(784)),
        "label": pa.array(range(rows), pa.int16()),
        "split": pa.array(["train", "train", "test"] * (rows // 3), pa.string()),
    }


def _assert_same(a: WrittenImages, b: WrittenImages) -> None:
    assert a.names == b.names
    for key in ("writer", "images", "labels", "is_test"):
        np.testing.assert_array_equal(getattr(a, key), getattr(b, key))


def test_round_trip_keeps_every_row(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "x.parquet"
    write_prepared(_written(), file)
    _assert_same(read_prepared(file), _written())
    assert list(file.parent.iterdir()) == [file], "temporary files stay behind"


def test_file_has_the_prepared_columns(tmp_path: Path) -> None:
    write_prepared(_written(), tmp_path / "x.parquet")
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert schema.names == ["writer_id", "image", "label", "split"]
    assert schema.types == [pa.string(), pa.binary(784), pa.int16(), pa.string()]


def test_rows_in_any_order_and_several_row_groups_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table(_table(12)), tmp_path / "x.parquet", row_group_size=5)
    read = read_prepared(tmp_path / "x.parquet")
    assert read.names == ("a", "b")
    assert read.writer.tolist() == [1, 0] * 6
    assert read.images[:, 0, 0].tolist() == list(range(12))
    assert read.is_test.tolist() == [False, False, True] * 4


def test_dataset_has_writers_as_clients_in_sorted_order(tmp_path: Path) -> None:
    pq.write_table(pa.table(_table(12)), tmp_path / "x.parquet")
    dataset = read_prepared(tmp_path / "x.parquet").dataset("x", 62, Provenance("files", ""))
    assert dataset.natural is not None
    assert dataset.natural.names == ("a", "b")
    assert dataset.train.x.shape == (8, 28, 28, 1)
    assert dataset.train.y[dataset.natural.train[0]].tolist() == [1, 3, 7, 9]
    assert dataset.train.y[dataset.natural.train[1]].tolist() == [0, 4, 6, 10]
    assert dataset.natural.test is not None
    assert dataset.test.y[dataset.natural.test[0]].tolist() == [5, 11]


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    write_prepared(_written(8), file)
    content = file.read_bytes()
    for place in range(0, len(content), 23):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        try:
            read = read_prepared(file, bytes(damaged))
        except DataError:
            continue
        _assert_same(read, _written(8))


@pytest.mark.parametrize("length", [0, 3, 100, 0.5, 0.99])
def test_truncated_file_is_named(tmp_path: Path, length: float) -> None:
    file = tmp_path / "x.parquet"
    write_prepared(_written(), file)
    content = file.read_bytes()
    file.write_bytes(content[: length if isinstance(length, int) else int(length * len(content))])
    with pytest.raises(DataError, match=f"{file}: cannot be read as Parquet, truncated or corrupt?"):
        read_prepared(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'x.parquet'}: cannot be read as Parquet"):
        read_prepared(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", None, "has no column 'label'; expected writer_id: string, image: fixed_size_binary"),
        ("label", pa.array(range(6), pa.int64()), "column 'label' is int64; expected"),
        ("image", pa.array([b"x" * 10] * 6, pa.binary(10)), r"column 'image' is fixed_size_binary\[10\]; expected"),
        ("writer_id", pa.array(["a"] * 5 + [None], pa.string()), "column 'writer_id' has 1 empty values"),
        ("split", pa.array(["unseen"] * 6, pa.string()), "column 'split' has unseen; allowed are train and test"),
        ("label", pa.array([62] * 6, pa.int16()), "labels run from 62 to 62, allowed are 0 to 61"),
    ],
)
def test_file_with_other_content_raises(tmp_path: Path, column: str, value: pa.Array | None, message: str) -> None:
    columns = _table() | {column: value}
    pq.write_table(pa.table({name: data for name, data in columns.items() if data is not None}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=f"{tmp_path / 'x.parquet'}: {message}"):
        read_prepared(tmp_path / "x.parquet")


def test_file_without_rows_raises(tmp_path: Path) -> None:
    pq.write_table(pa.table(_table()).slice(0, 0), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=f"{tmp_path / 'x.parquet'}: has no rows"):
        read_prepared(tmp_path / "x.parquet")


def test_unwritable_target_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=f"{tmp_path / 'file' / 'x.parquet'}: cannot be written"):
        write_prepared(_written(), tmp_path / "file" / "x.parquet")
