"""Reads table.md, which `rayfl.grid.page` writes, up to its lists of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rayfl.report.text_table import TextTable

_CELLS = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([\\|*`<])")


@dataclass(frozen=True)
class TablePage:
    """The contents of table.md: its tables with their captions, and the remarks below."""

    tables: Sequence[TextTable]
    remarks: Sequence[str]


def read_page(text: str) -> TablePage:
    """Reads the Markdown of a grid's page: blocks that empty lines separate, each a caption, a table or a remark."""
    blocks = [block for block in text.partition("\n## ")[0].split("\n\n") if block.strip()]
    tables, remarks, caption = [], [], ""
    for block in blocks[1:]:  # the title comes first
        lines = block.strip().splitlines()
        if lines[0].startswith("|"):
            header, _, *rows = map(_row, lines)
            tables.append(TextTable(caption, header, rows))
            caption = ""
        else:
            remarks += [caption] if caption else []
            caption = " ".join(lines).removeprefix("**").removesuffix("**")
    return TablePage(tables, [*remarks, caption] if caption else remarks)


def _row(line: str) -> list[str]:
    return [_ESCAPED.sub(r"\1", cell.strip()) for cell in _CELLS.split(line.strip())[1:-1]]
