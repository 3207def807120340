"""Tables of results: how their numbers are written, and pages of tables for terminals, in Markdown, HTML and LaTeX."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import NamedTuple

from rich.console import Console

from rayfl.console import Bold, TextTable, print_wrapped
from rayfl.runs.figures.style import balanced
from rayfl.studies.statistics import Summary

_CELLS = re.compile(r"(?<!\\)\|")
_ESCAPED = re.compile(r"\\([\\|*`<])")


class Numbers(NamedTuple):
    """How the numbers of a table are written: times `factor`, with as many decimals."""

    factor: float = 1.0
    decimals: int = 2

    def text(self, value: float, sign: str = "-") -> str:
        """A number; with `+` as `sign`, one that is not negative has a sign too."""
        return f"{self.factor * value:{sign}.{self.decimals}f}".replace("-", "−")

    def spread(self, stats: Summary) -> str:
        """The mean with the deviation, if there is one: `45.20 ± 0.31`."""
        mean = self.text(stats.mean)
        return mean if stats.deviation is None else f"{mean} ± {self.text(stats.deviation)}"

    def difference(self, stats: Summary) -> str:
        """The mean with its interval, if there is one: `+1.20 [−0.31, +2.71]`."""
        mean, margin = self.text(stats.mean, "+"), stats.margin
        if margin is None:
            return mean
        return f"{mean} [{self.text(stats.mean - margin, '+')}, {self.text(stats.mean + margin, '+')}]"


@dataclass(frozen=True)
class TablePage:
    """Tables of results, with notes.

    Attributes:
        tables: Each has its caption above it.
        notes: Sentences below them; those of type `Bold` stand out.
        title: The heading of the document in Markdown; empty for none.
        lists: Tables that follow; in Markdown, their captions are headings.
    """

    tables: Sequence[TextTable]
    notes: Sequence[str]
    title: str = ""
    lists: Sequence[TextTable] = ()

    def show(self, console: Console, spaced: bool = False) -> None:
        """Prints all tables, in parts where one is wider than the console, then the notes.

        Args:
            console: Where to print.
            spaced: Whether an empty line precedes every table.
        """
        for table in [*self.tables, *self.lists]:
            if spaced:
                console.print()
            table.show(console)
        for note in self.notes:
            print_wrapped(console, note, "bold red" if isinstance(note, Bold) else "")

    def markdown(self) -> str:
        """The page as a document in Markdown."""
        parts = [f"# {self.title}"] if self.title else []
        for table in self.tables:
            parts += [table.caption, table.markdown()]
        parts += [f"**{note}**" if isinstance(note, Bold) else note for note in self.notes]
        for table in self.lists:
            parts += [f"## {table.caption}", table.markdown()]
        return "\n\n".join(parts) + "\n"

    @classmethod
    def from_markdown(cls, text: str) -> TablePage:
        """Reads the title, tables and notes that `markdown` wrote, without the lists."""
        title, *blocks = [block.strip() for block in text.partition("\n## ")[0].split("\n\n") if block.strip()] or [""]
        tables: list[TextTable] = []
        notes: list[str] = []
        caption = ""
        for block in blocks:
            lines = block.splitlines()
            if lines[0].startswith("|"):
                header, _, *rows = map(_markdown_row, lines)
                tables.append(TextTable(caption, header, rows))
                caption = ""
            else:
                notes += [caption] if caption else []
                caption = " ".join(lines)
                caption = Bold(caption[2:-2]) if re.fullmatch(r"\*\*.*\*\*", caption) else caption
        return cls(tables, [*notes, caption] if caption else notes, title.removeprefix("# "))

    def html(self) -> str:
        """The tables and notes in HTML."""
        return "".join(table.html() for table in self.tables) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

    def latex(self) -> str:
        """A `table` environment of LaTeX for each table, with the notes below the last; for the package booktabs."""
        last = len(self.tables) - 1
        tables = (_latex_table(table, self.notes if place == last else ()) for place, table in enumerate(self.tables))
        return "\n\n".join([PREAMBLE, *tables]) + "\n"


REPR_WIDTH = 200
"""Characters of a line of `repr`."""


class ShownPage(ABC):
    """What a notebook shows as tables with notes, and prints as text, in Markdown and in LaTeX."""

    @property
    @abstractmethod
    def page(self) -> TablePage:
        """The tables and the notes."""

    @property
    def markdown(self) -> str:
        """The tables and the notes in Markdown."""
        return self.page.markdown()

    @property
    def latex(self) -> str:
        """The tables in LaTeX, for the package booktabs, with the notes below the last one."""
        return self.page.latex()

    def show(self, console: Console) -> None:
        """Prints the tables and the notes."""
        self.page.show(console)

    def __repr__(self) -> str:
        text = StringIO()
        # in a notebook, rich would ignore `file` and show the tables itself
        self.show(Console(file=text, width=REPR_WIDTH, force_jupyter=False))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return self.page.html()


def _markdown_row(line: str) -> list[str]:
    return [_ESCAPED.sub(r"\1", cell.strip()) for cell in _CELLS.split(line.strip())[1:-1]]


PREAMBLE = r"% needs \usepackage{booktabs} in the preamble"
HEADING_CHARACTERS = 12
"""Longer headings are set in several lines in LaTeX."""

_LOWER = """
    alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma varsigma tau upsilon varphi
    chi psi omega
"""
_UPPER = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_GREEK = dict(zip("αβγδεζηθικλμνξπρσςτυφχψωΓΔΘΛΞΠΣΥΦΨΩ", f"{_LOWER} {_UPPER}".split(), strict=True))
_SYMBOLS = {"±": "pm", "×": "times", "≤": "leq", "≥": "geq", "→": "rightarrow", "∞": "infty", "·": "cdot", "µ": "mu"}
_TEXTS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "\N{NO-BREAK SPACE}": "~",
    "²": "$^2$",
    "–": "--",
    "…": r"\ldots{}",
    "[": "{[}",  # a row that begins with one would be an option of the row before
    "]": "{]}",
}
_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"$\\{name}$" for character, name in (_GREEK | _SYMBOLS).items()}
    | _TEXTS
)


def latex_text(text: str) -> str:
    r"""Text that LaTeX prints as it is; Greek letters and signs become mathematics.

    Letters with accents stay, since LaTeX reads UTF-8.
    """
    return text.translate(_ESCAPES)


def _latex_table(table: TextTable, notes: Sequence[str]) -> str:
    lines = [
        r"\begin{table}",
        r"\centering\small",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        _latex_row(map(_stacked, table.header)),
        r"\midrule",
        *(_latex_row(map(_latex_cell, row)) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {latex_text(note)}" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(text: str) -> str:
    return rf"\textbf{{{latex_text(text)}}}" if isinstance(text, Bold) else latex_text(text)


def _stacked(text: str) -> str:
    """A long heading in lines of similar lengths, since a wide table does not fit a page."""
    lines = balanced(text, HEADING_CHARACTERS)
    if len(lines) < 2:
        return latex_text(text)
    return r"\shortstack[r]{" + r"\\".join(map(latex_text, lines)) + "}"
