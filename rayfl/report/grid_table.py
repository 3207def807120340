"""What a grid gave: the accuracy of every cell, mean and spread over seeds, beside what was published."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.config.grid import Grid, Metric
from rayfl.durable import written_whole
from rayfl.report.duration import duration

TAIL = 5
"""Evaluated rounds at the end that `mean_last_5` is the mean of: single rounds jump under skewed partitions."""

RUNS = pa.schema(
    [
        ("row", pa.string()),
        ("column", pa.string()),
        ("seed", pa.int64()),
        ("best", pa.float64()),
        ("best_round", pa.int64()),
        ("last", pa.float64()),
        ("mean_last_5", pa.float64()),
        ("rounds", pa.int64()),
        ("test_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("data", pa.string()),
        ("data_source", pa.string()),
        ("published_best", pa.float64()),
        ("published_last", pa.float64()),
        ("published_mean_last_5", pa.float64()),
    ]
)
"""table.parquet, a row per finished run: accuracies in percent, test_loss after the last round."""

_IN_WORDS: dict[Metric, str] = {
    "best": "of the best evaluated round",
    "last": "of the last round",
    "mean_last_5": f"mean of the last {TAIL} evaluated rounds",
}


@dataclass(frozen=True)
class CellRun:
    """The figures of one finished run: accuracies on the test examples in percent, and what it trained on."""

    row: str
    column: str
    seed: int
    best: float
    best_round: int
    last: float
    mean_last_5: float
    rounds: int
    test_loss: float | None
    seconds: float
    data: str
    data_source: str
    data_description: str
    data_digests: tuple[str, ...]

    @classmethod
    def read(cls, row: str, column: str, seed: int, folder: Path) -> CellRun:
        """From the records in a run's folder."""
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        lines.sort(key=lambda line: line["round"])
        accuracy = [100 * line["test_accuracy"] for line in lines]
        data = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["data"]
        return cls(
            row,
            column,
            seed,
            best=max(accuracy),
            best_round=lines[accuracy.index(max(accuracy))]["round"],
            last=accuracy[-1],
            mean_last_5=statistics.fmean(accuracy[-TAIL:]),
            rounds=lines[-1]["round"],
            test_loss=lines[-1]["test_loss"],
            seconds=lines[-1]["seconds"],
            data=data["name"],
            data_source=data["source"],
            data_description=data["description"],
            data_digests=tuple(file["sha256"] for file in data["files"]),
        )

    def data_found(self) -> str:
        """`files, sha256 0a1b2c3d4e5f6071…`: the same for the same data, in whatever folder."""
        return ", ".join([self.data_source, *(f"sha256 {digest[:16]}…" for digest in self.data_digests)])


@dataclass(frozen=True)
class GridTable:
    """A grid and its finished runs; changes: what the command line made other than the grid says."""

    grid: Grid
    runs: Sequence[CellRun]
    changes: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        """table.md, for people, and table.parquet, with the columns of `RUNS`."""
        with written_whole(folder / "table.md") as path:
            path.write_text(self.markdown(), encoding="utf-8")
        rows = [
            vars(run) | {f"published_{metric}": self._published(metric, run.row, run.column) for metric in _IN_WORDS}
            for run in self.runs
        ]
        with written_whole(folder / "table.parquet") as path:
            pq.write_table(pa.Table.from_pylist(rows, schema=RUNS), path)

    def markdown(self) -> str:
        """A table for every metric, and one of all runs."""
        parts = [f"# {self.grid.title or self.grid.name}"]
        for metric in self.grid.metrics:
            cells = [[row, *(self.cell(metric, row, column) for column in self.grid.columns)] for row in self.grid.rows]
            parts += [self._caption(metric), _markdown(["", *self.grid.columns], cells)]
        parts += [f"**{said}**" if warns else said for said, warns in self._remarks()]
        if self.runs:
            header = ["", "", "seed", "best", "in round", f"mean of the last {TAIL}", "last", "rounds", "time"]
            parts += ["## Runs", _markdown(header, [_run_cells(run) for run in self.runs])]
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """Prints the tables of the metrics."""
        for metric in self.grid.metrics:
            console.print()
            console.print(Text(self._caption(metric), style="italic"), soft_wrap=True)
            table = Table(box=box.SIMPLE_HEAD, header_style="bold")
            for label in ("", *self.grid.columns):
                table.add_column(Text(label), justify="right" if label else "left")
            for row in self.grid.rows:
                table.add_row(Text(row), *(Text(self.cell(metric, row, column)) for column in self.grid.columns))
            console.print(table)
        for said, warns in self._remarks():
            console.print(Text(said, style="bold red" if warns else ""), soft_wrap=True)

    def cell(self, metric: Metric, row: str, column: str) -> str:
        """`45.20 ± 0.31 (46.10)`: mean and sample standard deviation over the seeds, and what is published."""
        values = [getattr(run, metric) for run in self.runs if (run.row, run.column) == (row, column)]
        text = "not run"
        if values:
            text = f"{statistics.fmean(values):.2f}"
            text += f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            text += f", {len(values)} of {len(self.grid.seeds)} seeds" if len(values) < len(self.grid.seeds) else ""
        published = self._published(metric, row, column)
        return text if published is None else f"{text} ({published:.2f})"

    def _published(self, metric: Metric, row: str, column: str) -> float | None:
        """None beside figures of generated data too: they are not of what was published."""
        if any(run.data_source == "generated" for run in self.runs if (run.row, run.column) == (row, column)):
            return None
        return self.grid.published.get(metric, {}).get(row, {}).get(column)

    def _caption(self, metric: Metric) -> str:
        seeds = self.grid.seeds
        over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean ± standard deviation over {len(seeds)} seeds"
        pairs = [(row, column) for row in self.grid.rows for column in self.grid.columns]
        beside = any(self._published(metric, *pair) is not None for pair in pairs)
        published = "; in brackets what is published" if beside else ""
        return f"Test accuracy in percent, {_IN_WORDS[metric]}; {over}{published}."

    def _remarks(self) -> list[tuple[str, bool]]:
        """What stands under the tables, and whether it is a warning: such as that data was generated."""
        remarks = [(self.grid.note, False)] if self.grid.note else []
        if self.changes:
            remarks.append((f"Not the grid as shipped: {', '.join(self.changes)}.", True))
        for data, source, described in dict.fromkeys(
            (run.data, run.data_source, run.data_description) for run in self.runs
        ):
            generated = source == "generated"
            what = f"GENERATED DATA, no real data set: {data}" if generated else f"Data: {data}, from {source}"
            remarks.append((f"{what}. {described}.", generated))
        return remarks


def _run_cells(run: CellRun) -> list[str]:
    figures = [f"{run.best:.2f}", f"{run.best_round}", f"{run.mean_last_5:.2f}", f"{run.last:.2f}"]
    return [run.row, run.column, f"{run.seed}", *figures, f"{run.rounds}", duration(run.seconds)]


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
