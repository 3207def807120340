"""`rayfl report`: writes a page on a run or a grid, in one file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser

EXAMPLES = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000
  {prog} runs/cyclicfl_table_2 --out table_2.html
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns. Wrong options exit with 2."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _carry_out(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(
        prog,
        "Write one HTML file on a run or a grid: results, curves, split, fairness, privacy, environment, scenario. "
        "Opening it sends no request to any other host.",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, metavar="RUN|GRID", help="the folder of a run or a grid")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file to write (default: report.html in the folder)"
    )
    return parser


def _carry_out(options: argparse.Namespace) -> int:
    from rayfl.studies.figures.page.report import write_report  # loads matplotlib

    out = write_report(options.folder, options.out)
    print(f"report  {out}")
    return 0
