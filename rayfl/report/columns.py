"""The columns of a run's records, and how reported scalars join them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from rayfl.errors import RayflError

METRICS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("round_in_phase", pa.int64()),
        ("train_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("transfers", pa.int64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
    ]
)
"""metrics.jsonl, a line per evaluated round; scores come before `train_loss`, reported scalars at the end."""

CLIENTS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("set", pa.string()),
        ("samples", pa.int64()),
    ]
)
"""clients.parquet; scores and reported scalars follow under their names."""

OWNER = pa.field("owner", pa.dictionary(pa.int32(), pa.string()))
"""Another column of clients.parquet, if the data names its clients."""


def joined(row: Mapping[str, object], *reported: Mapping[str, float | None]) -> dict[str, object]:
    """Returns a row with reported scalars as further columns.

    Args:
        row: The fixed columns.
        reported: Scalars by name; None stays empty.

    Raises:
        RayflError: A scalar has the name of another column.
    """
    whole = dict(row)
    for scalars in reported:
        for name, value in scalars.items():
            if name in whole:
                raise RayflError(f"reported scalar '{name}': the records have a column of this name; choose another")
            whole[name] = None if value is None else float(value)
    return whole
