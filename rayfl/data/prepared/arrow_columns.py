"""Inputs as columns of Arrow record batches, and where their values lie in an uncompressed IPC file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayfl.data.inputs import Array, Pieces
from rayfl.data.prepared.manifest import Column
from rayfl.errors import DataError


def column_of(name: str, part: Array | Pieces) -> Column:
    """Describes inputs.

    Raises:
        DataError: A row holds no values.
    """
    ragged = isinstance(part, Pieces)
    shape = part.inner_shape if isinstance(part, Pieces) else part.shape[1:]
    if 0 in shape:
        raise DataError(f"data.name: inputs {name} of shape {list(shape)} hold no values")
    return Column(name=name, dtype=part.dtype.name, shape=tuple(map(int, shape)), ragged=ragged)


def written(file: Path, columns: Sequence[Column], blocks: Iterator[list[Any]]) -> None:
    """Writes blocks of rows, each a list with the values of every column, as the record batches of a file."""
    schema = pa.schema([(column.name or "x", _type(column)) for column in columns])
    with pa.ipc.new_file(str(file), schema) as writer:
        for block in blocks:
            arrays = [_array(column, values) for column, values in zip(columns, block, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def places_in(file: Path, columns: Sequence[Column]) -> tuple[tuple[int, ...], ...]:
    """The blocks of a file that `written` wrote; see `Fragment.blocks`."""
    with pa.memory_map(str(file)) as memory:
        whole = memory.read_buffer()
        reader = pa.ipc.open_file(whole)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        return tuple(
            (len(batch), *(_place(buffer, whole) for column in batch.columns for buffer in _buffers(column)))
            for batch in batches
        )


def _place(buffer: pa.Buffer, whole: pa.Buffer) -> int:
    """Where a buffer begins in a file; 0 for one without values, whose address may be anywhere."""
    return buffer.address - whole.address if buffer.size else 0


def _buffers(array: pa.Array) -> list[pa.Buffer]:
    """The offsets of a ragged column, and the values."""
    found = []
    while not pa.types.is_primitive(array.type):
        if pa.types.is_large_list(array.type):
            found.append(array.buffers()[1])
        array = array.values
    return [*found, array.buffers()[1]]


def _type(column: Column) -> pa.DataType:
    kind = pa.from_numpy_dtype(_stored(column))
    for size in reversed(column.shape):
        kind = pa.list_(kind, size)
    return pa.large_list(kind) if column.ragged else kind


def _stored(column: Column) -> np.dtype:
    """Arrow packs booleans into bits."""
    return np.dtype(np.uint8 if column.dtype == "bool" else column.dtype)


def _array(column: Column, values: Any) -> pa.Array:
    if not column.ragged:
        return _nested(column, values)
    offsets = np.cumsum([0, *map(len, values)])
    whole = [piece for piece in values if len(piece)] or [np.empty((0, *column.shape), column.dtype)]
    inner = _nested(column, np.concatenate(whole))
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner)


def _nested(column: Column, values: np.ndarray) -> pa.Array:
    array = pa.array(np.ascontiguousarray(values).view(_stored(column)).ravel())
    for size in reversed(column.shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array
