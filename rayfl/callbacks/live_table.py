"""A table of the metrics in a notebook, updated after every evaluated round."""

from __future__ import annotations

import importlib.util
import sys
from html import escape
from typing import Any

from pydantic import PositiveInt

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.report.metrics_table import metrics_table


class LiveTable(Callback):
    """Shows the latest evaluated rounds as a table below a notebook cell.

    Attributes:
        rows: Number of rounds to show.
    """

    rows: PositiveInt = 10

    _display: Any = None

    def check(self, scenario: Scenario) -> None:
        """See `Callback.check`."""
        if not _in_notebook():
            raise ScenarioError("live_table needs a notebook, but this program does not run in one; leave it out")

    def on_start(self, run: RunSoFar) -> None:
        """See `Callback.on_start`."""
        from IPython.display import HTML, display

        self._display = display(HTML(f"<p>{escape(run.scenario.name)}: starting</p>"), display_id=True)

    def on_evaluation(self, run: RunSoFar) -> None:
        """See `Callback.on_evaluation`."""
        self._show(run, "")

    def on_end(self, run: RunSoFar) -> None:
        """See `Callback.on_end`."""
        self._show(run, f", {run.ended}")

    def _show(self, run: RunSoFar, ending: str) -> None:
        from IPython.display import HTML

        last = run.scenario.phases and sum(phase.rounds for phase in run.scenario.phases)
        done = run.round.round if run.round else 0
        caption = f"{run.scenario.name}: round {done} of {last}{ending}"
        if self._display is not None:
            self._display.update(HTML(metrics_table(caption, run.metrics[-self.rows :]).html()))


def _in_notebook() -> bool:
    if "IPython" not in sys.modules or importlib.util.find_spec("IPython") is None:
        return False
    from IPython import get_ipython

    return get_ipython() is not None
