"""The progress bar that runs and grids share."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn


def bar_on(console: Console, *columns: ProgressColumn) -> Progress | None:
    """Returns a bar as wide as the terminal: description, bar, then `columns`. None if the console is no terminal."""
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    description = TextColumn("{task.description}", markup=False, style="bold")
    return Progress(description, BarColumn(bar_width=None), *columns, console=console, expand=True)
