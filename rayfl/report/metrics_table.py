"""Rows of metrics as a table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rayfl.report.formatting import words_of
from rayfl.report.text_table import Bold, TextTable

HIDDEN = {"round_in_phase", "bytes_down", "bytes_up"}


def metrics_table(caption: str, rows: Sequence[Mapping[str, Any]], emphasised: str = "") -> TextTable:
    """Makes a table of rows of metrics, without columns that are empty in all rows.

    Args:
        caption: Text above the table.
        rows: Some or all rows of `metrics.jsonl`.
        emphasised: The column in bold.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    columns = [name for name in names if name not in HIDDEN]
    cells = [[(Bold if name == emphasised else str)(_text(row.get(name))) for name in columns] for row in rows]
    return TextTable(caption, [*map(words_of, columns)], cells)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
