"""`rayfl compare`, `plot` and `report`: tables, curves and pages of finished runs and grids."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser, folder_or_uri
from rayfl.console import table_console
from rayfl.errors import ScenarioError

COMPARING = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000 runs/femnist_fedavg-20260101-130000 --target 0.6
  {prog} runs/cyclicfl_table_2 --reference FedAvg --at mean_last_5
  {prog} runs/fedbug_table_1 --panels rows
  {prog} runs/cyclicfl_table_2 --metric test_accuracy test_loss --format latex > table.tex
  {prog} runs/one runs/other --by client
"""

PLOTTING = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000
  {prog} runs/cyclicfl_table_2 --x bytes --smooth 5 --out table_2.pdf
  {prog} runs/fedbug_figure_3_cifar100 --x phases.federated.local.unfreeze.share --at mean_last_5
  {prog} runs/one runs/other --labels "CyclicFL" "FedAvg" --metric test_accuracy train_loss --out both.svg
  {prog} runs/one runs/other --by client --out clients.pdf
"""

REPORTING = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000
  {prog} runs/cyclicfl_table_2 --out table_2.html
  {prog} runs/femnist_cyclic-20260101-120000 --follow
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """Runs one of the commands; `exit_status` explains what it returns. Wrong options exit with 2.

    Args:
        arguments: The command's arguments.
        prog: Ends with the command, such as `rayfl compare`.
    """
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: options.execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The argument parser of the command that `prog` ends with."""
    parsers = {"compare": _parser_of_compare, "plot": _parser_of_plot, "report": _parser_of_report}
    return parsers[prog.rpartition(" ")[2]](prog)


def _parser_of_compare(prog: str) -> argparse.ArgumentParser:
    parser = command_parser(prog, "Compare finished runs and grids in a table, with paired differences.", COMPARING)
    _add_sources(parser)
    parser.add_argument("--reference", metavar="LABEL", help="compare the others with this row (default: the first)")
    parser.add_argument(
        "--at",
        type=_at,
        default="last",
        metavar="ROUND",
        help="take scores from the last or best round, mean_last_5, or a round by its number (default: last)",
    )
    parser.add_argument(
        "--target",
        type=float,
        metavar="SCORE",
        help="also show when runs first reach this score of the first metric; 0.6 for 60 %%",
    )
    parser.add_argument("--runs", action="store_true", help="list every run too: its best, last and final mean score")
    parser.add_argument(
        "--format", choices=["text", "markdown", "latex"], default="text", help="how to print it (default: text)"
    )
    parser.set_defaults(execute=_compare)
    return parser


def _parser_of_plot(prog: str) -> argparse.ArgumentParser:
    parser = command_parser(
        prog,
        "Draw learning curves of finished runs and grids for a paper: means over seeds with bands, a panel for every "
        "column of a grid.",
        PLOTTING,
    )
    _add_sources(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .png, .svg or .pdf file (default: plot.png in the folder, if there is one folder only)",
    )
    parser.add_argument(
        "--x",
        default="rounds",
        metavar="AXIS",
        help="rounds (default), last_phase (its rounds), updates, bytes, transfers, seconds, simulated_seconds, energy "
        "or epsilon; or a key of the scenarios, such as phases.cyclic.rounds: a point for each cell of a grid, instead "
        "of curves",
    )
    parser.add_argument(
        "--at",
        type=_at,
        default="last",
        metavar="ROUND",
        help="with such a key, take scores from the last or best round, mean_last_5, or a round by its number "
        "(default: last)",
    )
    parser.add_argument(
        "--band",
        default="std",
        metavar="BAND",
        help="around means over seeds, or over tasks: std (default), range, interval (95 %% confidence) or none",
    )
    parser.add_argument(
        "--lines", nargs="+", default=[], metavar="LABEL", help="which lines to draw, in this order (default: all)"
    )
    parser.add_argument(
        "--width",
        metavar="WIDTH",
        help="column (3.4 inches) or page (7 inches; default where there are several panels)",
    )
    parser.set_defaults(execute=_plot)
    return parser


def _parser_of_report(prog: str) -> argparse.ArgumentParser:
    parser = command_parser(
        prog,
        "Write one HTML file on a run or a grid: results, curves, split, fairness, privacy, environment, scenario. "
        "Opening it sends no request to any other host.",
        REPORTING,
    )
    parser.add_argument("folder", type=folder_or_uri, metavar="RUN|GRID", help="the folder of a run or a grid")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file to write (default: report.html in the folder)"
    )
    parser.add_argument(
        "--follow", action="store_true", help="while a run is under way, write the page again every few seconds"
    )
    parser.set_defaults(execute=_report)
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    """Adds the runs and grids to read, and which of their metrics and parts are shown under which labels."""
    parser.add_argument(
        "sources", nargs="+", type=folder_or_uri, metavar="RUN|GRID", help="the folder of a run or a grid"
    )
    parser.add_argument(
        "--metric",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="columns of metrics.jsonl, such as test_loss (default: the metric that ranks rounds)",
    )
    parser.add_argument(
        "--smooth", type=int, default=1, metavar="N", help="average curves over N evaluated rounds first, an odd number"
    )
    parser.add_argument("--labels", nargs="+", default=[], metavar="LABEL", help="other labels, in their order")
    parser.add_argument(
        "--panels",
        choices=["columns", "rows"],
        default="columns",
        help="one panel or table for each of the grid's columns (default), or for each of its rows",
    )
    parser.add_argument(
        "--by",
        choices=["client"],
        help="show the last scores of single clients instead, which runs record with evaluation.per_client; metrics "
        "are then those of clients.parquet, such as accuracy",
    )


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """What was given for the options of `_add_sources`, but for the sources."""
    return {
        "metrics": options.metric,
        "smooth": options.smooth,
        "labels": options.labels,
        "panels": options.panels,
        "by": options.by,
    }


def _at(text: str) -> str | int:
    if text in ("last", "best", "mean_last_5"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"must be last, best, mean_last_5 or a round (got '{text}')")


def _compare(options: argparse.Namespace) -> int:
    from rayfl.studies.figures.comparison import compare  # loads pyarrow, which the parser does without

    comparison = compare(
        *options.sources,
        reference=options.reference,
        at=options.at,
        target=options.target,
        **_chosen(options),
        list_runs=options.runs,
    )
    if options.format == "text":
        comparison.show(table_console())
    else:
        sys.stdout.write(comparison.markdown if options.format == "markdown" else comparison.latex)
    return 0


def _plot(options: argparse.Namespace) -> int:
    if options.out is None and len(options.sources) > 1:
        raise ScenarioError("out: with several folders, say where the figure goes: --out FILE.png")
    from rayfl.studies.figures.plot import plot  # loads matplotlib

    out = options.out or Path(options.sources[0]) / "plot.png"
    plot(
        *options.sources,
        out=out,
        x=options.x,
        at=options.at,
        band=options.band,
        lines=options.lines,
        **_chosen(options),
        width=options.width,
    )
    print(f"picture  {out}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from rayfl.studies.figures.groups import folder_of
    from rayfl.studies.figures.page.report import write_report  # loads matplotlib
    from rayfl.studies.figures.page.sections import RENEWED_S
    from rayfl.studies.figures.recorded_grid import is_grid

    folder = folder_of(options.folder)
    if options.follow and is_grid(folder):
        raise ScenarioError(f"follow: '{folder}' is a grid; follow one of its runs")
    written = write_report(folder, options.out, options.follow)
    print(f"report  {written.path}", flush=True)
    if written.renewed:
        print(f"it is written again every {RENEWED_S} s until the run has ended; Ctrl-C ends this command alone")
    while written.renewed:
        time.sleep(RENEWED_S)
        written = write_report(folder, options.out, options.follow)
    return 0
