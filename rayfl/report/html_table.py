"""Rows of metrics as an HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rayfl.report.formatting import words_of

HIDDEN = {"round_in_phase", "bytes_down", "bytes_up"}


def html_table(caption: str, rows: Sequence[Mapping[str, Any]], emphasised: str = "") -> str:
    """Makes the table, without columns that are empty in all rows.

    Args:
        caption: Text above the table.
        rows: Some or all rows of `metrics.jsonl`.
        emphasised: The column in bold.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    columns = [name for name in names if name not in HIDDEN]
    head = "".join(f"<th>{escape(words_of(name))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(_cell(row.get(name), name == emphasised) for name in columns) + "</tr>" for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def _cell(value: Any, bold: bool) -> str:
    text = "–" if value is None else escape(f"{value:.4g}" if isinstance(value, float) else str(value))
    return f"<td><b>{text}</b></td>" if bold else f"<td>{text}</td>"
