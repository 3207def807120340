"""Rows of metrics as a table for notebooks, and the callback that updates one after every evaluated round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, ClassVar

from pydantic import PositiveInt
from rich.console import Console
from rich.filesize import decimal

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.console import Bold, TextTable
from rayfl.engine.plan.headline import Headline, is_part, words_of
from rayfl.errors import ScenarioError
from rayfl.wording import duration

ABSENT = "–"
HIDDEN = {"round_in_phase", "bytes_down", "bytes_up"}


def metrics_table(caption: str, rows: Sequence[Mapping[str, Any]], headline: Headline | None = None) -> TextTable:
    """Makes a table of rows of metrics, without scores of single classes and empty columns.

    Args:
        caption: Text above the table.
        rows: Some or all rows of `metrics.jsonl`.
        headline: The metric that ranks rounds, in bold; it knows which scores are shares.
    """
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    columns = [name for name in names if name not in HIDDEN and not is_part(name, names)]
    bold = headline.reported if headline else ""
    cells = [
        [(Bold if name == bold else str)(_cell_text(name, row.get(name), headline)) for name in columns] for row in rows
    ]
    return TextTable(caption, [*map(words_of, columns)], cells)


def _cell_text(name: str, value: Any, headline: Headline | None) -> str:
    if value is None:
        return ABSENT
    if name == "bytes":
        return decimal(value)
    if name in ("seconds", "simulated_seconds"):
        return duration(value)
    if isinstance(value, float):
        return headline.column_text(name, value) if headline else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class LiveTable(Callback):
    """Shows the latest evaluated rounds as a table below a notebook cell.

    Attributes:
        rows: Number of rounds to show.
    """

    settles: ClassVar[bool] = False

    rows: PositiveInt = 10

    _display: Any = None

    def check(self, scenario: Scenario) -> None:
        if not Console().is_jupyter:
            raise ScenarioError("live_table needs a notebook, but this program does not run in one; leave it out")

    def on_start(self, run: RunSoFar) -> None:
        from IPython.display import HTML, display

        self._display = display(HTML(f"<p>{escape(run.scenario.name)}: starting</p>"), display_id=True)

    def on_evaluation(self, run: RunSoFar) -> None:
        self._show(run, "")

    def on_end(self, run: RunSoFar) -> None:
        self._show(run, f", {run.ended}")

    def _show(self, run: RunSoFar, ending: str) -> None:
        from IPython.display import HTML

        last = run.scenario.phases and sum(phase.rounds for phase in run.scenario.phases)
        done = run.round.round if run.round else 0
        caption = f"{run.scenario.name}: round {done} of {last}{ending}"
        if self._display is not None:
            self._display.update(HTML(metrics_table(caption, run.metrics[-self.rows :], run.headline).html()))
