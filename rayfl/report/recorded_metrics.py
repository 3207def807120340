"""Reads metrics.jsonl, even while a run writes it; does not load PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from rayfl.errors import ResourceError
from rayfl.reading import reading
from rayfl.report.columns import METRICS
from rayfl.report.folder import METRICS_FILE


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of metrics.jsonl in the folder of a run, so far.

    Raises:
        ResourceError: The file is damaged.
    """
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    with reading(path, "as lines of JSON", ResourceError):
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a run may be writing
        return [dict(json.loads(line)) for line in whole.split("\n")[:-1]]


def read_metrics(folder: Path) -> pa.Table:
    """Returns the metrics in the folder of a run, so far, sorted by round.

    The columns are those of `METRICS`, and a float64 column for every score and every reported scalar, in the order
    of metrics.jsonl; values that were not finite or not reported are null.

    Raises:
        ResourceError: The file is damaged.
    """
    rows = read_rows(folder)
    names = dict.fromkeys(name for row in rows for name in row) or METRICS.names
    known = {field.name: field.type for field in METRICS}
    with reading(folder / METRICS_FILE, "as metrics", ResourceError):
        schema = pa.schema([(name, known.get(name, pa.float64())) for name in names])
        return pa.Table.from_pylist(rows, schema=schema).sort_by("round")
