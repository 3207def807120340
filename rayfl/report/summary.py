"""The table at a run's end: what each phase reached and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from rayfl.engine.events import Evaluated, Event, RoundDone, Traffic
from rayfl.report.duration import duration


@dataclass
class _Phase:
    last_round: RoundDone | None = None
    last: Evaluated | None = None
    best: Evaluated | None = None


class Summary:
    """Collects the events of a run, a few of each phase, and renders the result."""

    def __init__(self) -> None:
        self._phases: dict[str, _Phase] = {}

    def add(self, event: Event) -> None:
        """Takes in what the scheduler tells."""
        match event:
            case RoundDone():
                self._phases.setdefault(event.phase, _Phase()).last_round = event
            case Evaluated():
                phase = self._phases.setdefault(event.phase, _Phase())
                if phase.last is None or event.round > phase.last.round:
                    phase.last = event
                if phase.best is None or event.accuracy > phase.best.accuracy:
                    phase.best = event

    def show(self, console: Console, folder: Path) -> None:
        """Prints a column for every phase that committed a round, and below them where the records are.

        Transfers (of models), traffic and time are the phase's own; the best test accuracy stands with the first
        round that reached it, counted through the whole scenario.
        """
        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        table.add_column("")
        rows: dict[str, list[str]] = {}
        before = Traffic()
        started = 0.0
        for name, phase in self._phases.items():
            done, last, best = phase.last_round, phase.last, phase.best
            if done is None:
                continue
            table.add_column(Text(name), justify="right")
            cells = {
                "rounds": f"{done.round_in_phase:,}",
                "test accuracy": f"{100 * last.accuracy:.2f} %" if last else "–",
                "best test accuracy": f"{100 * best.accuracy:.2f} %" if best else "–",
                "reached in round": f"{best.round:,}" if best else "–",
                "test loss": f"{last.loss:.4g}" if last else "–",
                "model transfers": f"{done.traffic.transfers - before.transfers:,}",
                "traffic": decimal(done.traffic.bytes - before.bytes),
                "time": duration(done.seconds - started),
            }
            if last and last.personalized_accuracy is not None:
                cells["personalized accuracy"] = f"{100 * last.personalized_accuracy:.2f} %"
            for label, cell in cells.items():
                rows.setdefault(label, []).append(cell)
            before, started = done.traffic, done.seconds
        for label, row in rows.items():
            table.add_row(label, *row)
        console.print(table)
        console.print(Text.assemble("records: ", (str(folder), "bold")), soft_wrap=True)
