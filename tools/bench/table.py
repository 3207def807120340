"""The result: a row per figure with its target, on the terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

COLUMNS = ("measurement", "figure", "target", "figure / target", "met", "from")


@dataclass(frozen=True)
class Row:
    """One figure and its target, if any: at least (`>=`) or at most (`<=`).

    Attributes:
        detail: The measured values that the figure was computed from.
    """

    name: str
    figure: float
    unit: str
    bound: Literal[">=", "<="]
    target: float | None
    detail: str

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.figure >= self.target if self.bound == ">=" else self.figure <= self.target

    def cells(self) -> tuple[str, ...]:
        sign = {">=": "≥", "<=": "≤"}[self.bound]
        figure = f"{self.figure:.3g} {self.unit}"
        if self.target is None:
            return (self.name, figure, "", "", "", self.detail)
        return (
            self.name,
            figure,
            f"{sign} {self.target:g} {self.unit}",
            f"{self.figure / self.target:.2f}",
            "yes" if self.met else "no",
            self.detail,
        )


def print_table(rows: Sequence[Row], facts: Sequence[str]) -> None:
    """Prints the table with the facts below it, in lines as long as they need to be."""
    table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row.cells())
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, Measurement.get(console, console.options.update(width=1000), table).maximum)
    console.print(table, *facts, sep="\n")


def as_markdown(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """Returns a GitHub table with the conditions as a list below it."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(row.cells() for row in rows)]
    return "\n".join([*("| " + " | ".join(cells) + " |" for cells in lines), "", *(f"- {fact}" for fact in facts)])
