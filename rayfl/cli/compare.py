"""`rayfl compare`: prints tables of finished runs and grids."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_sources, command_parser
from rayfl.console import table_console

EXAMPLES = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000 runs/femnist_fedavg-20260101-130000 --target 0.6
  {prog} runs/cyclicfl_table_2 --reference FedAvg --at mean_last_5
  {prog} runs/fedbug_table_1 --panels rows
  {prog} runs/cyclicfl_table_2 --metric test_accuracy test_loss --format latex > table.tex
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns. Wrong options exit with 2."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _carry_out(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "Compare finished runs and grids in a table, with paired differences.", EXAMPLES)
    add_sources(parser)
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
    return parser


def _at(text: str) -> str | int:
    if text in ("last", "best", "mean_last_5"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"must be last, best, mean_last_5 or a round (got '{text}')")


def _carry_out(options: argparse.Namespace) -> int:
    from rayfl.studies.figures.comparison import compare  # loads pyarrow, which the parser does without

    comparison = compare(
        *options.sources,
        reference=options.reference,
        metrics=options.metric,
        at=options.at,
        target=options.target,
        smooth=options.smooth,
        labels=options.labels,
        panels=options.panels,
        list_runs=options.runs,
    )
    if options.format == "text":
        comparison.show(table_console())
    else:
        sys.stdout.write(comparison.markdown if options.format == "markdown" else comparison.latex)
    return 0
