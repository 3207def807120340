"""Tables with their captions and remarks, as Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from rayfl.report.text_table import TextTable


@dataclass(frozen=True)
class Remark:
    """A sentence under the tables; `warns` makes it stand out."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Page:
    """The page of a grid: tables, remarks below them, and lists of runs at the end."""

    title: str
    tables: Sequence[TextTable]
    remarks: Sequence[Remark]
    lists: Sequence[TextTable]

    def markdown(self) -> str:
        """Returns the page as a Markdown document."""
        parts = [f"# {self.title}"]
        for table in self.tables:
            parts += [table.caption, table.markdown()]
        parts += [f"**{remark.text}**" if remark.warns else remark.text for remark in self.remarks]
        for table in self.lists:
            parts += [f"## {table.caption}", table.markdown()]
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """Prints the page, without its title."""
        for table in [*self.tables, *self.lists]:
            console.print()
            console.print(Text(table.caption, style="italic"), soft_wrap=True)
            console.print(table.rich())
        for remark in self.remarks:
            console.print(Text(remark.text, style="bold red" if remark.warns else ""), soft_wrap=True)
