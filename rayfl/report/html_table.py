"""HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rayfl.report.formatting import words_of

HIDDEN = {"round_in_phase", "bytes_down", "bytes_up"}


def html_table(caption: str, header: Iterable[str], rows: Iterable[Iterable[tuple[str, bool]]]) -> str:
    """Makes a table of texts; a cell is its text, and whether it is bold."""
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def metrics_table(caption: str, rows: Sequence[Mapping[str, Any]], emphasised: str = "") -> str:
    """Makes a table of rows of metrics, without columns that are empty in all rows.

    Args:
        caption: Text above the table.
        rows: Some or all rows of `metrics.jsonl`.
        emphasised: The column in bold.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    columns = [name for name in names if name not in HIDDEN]
    cells = ([(_text(row.get(name)), name == emphasised) for name in columns] for row in rows)
    return html_table(caption, map(words_of, columns), cells)


def _cell(text: str, bold: bool) -> str:
    return f"<td><b>{escape(text)}</b></td>" if bold else f"<td>{escape(text)}</td>"


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
