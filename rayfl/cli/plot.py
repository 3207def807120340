"""`rayfl plot`: draws learning curves of finished runs and grids for a paper."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_sources, command_parser
from rayfl.errors import ScenarioError

EXAMPLES = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000
  {prog} runs/cyclicfl_table_2 --x bytes --smooth 5 --out table_2.pdf
  {prog} runs/one runs/other --labels "CyclicFL" "FedAvg" --metric test_accuracy train_loss --out both.svg
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns. Wrong options exit with 2."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _carry_out(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(
        prog,
        "Draw learning curves of finished runs and grids for a paper: means over seeds with bands, a panel for every "
        "column of a grid.",
        EXAMPLES,
    )
    add_sources(parser)
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
        help="rounds (default), updates, bytes, transfers, seconds, simulated_seconds, energy or epsilon",
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
    return parser


def _carry_out(options: argparse.Namespace) -> int:
    if options.out is None and len(options.sources) > 1:
        raise ScenarioError("out: with several folders, say where the figure goes: --out FILE.png")
    from rayfl.studies.figures.plot import plot  # loads matplotlib

    out = options.out or options.sources[0] / "plot.png"
    plot(
        *options.sources,
        out=out,
        metrics=options.metric,
        x=options.x,
        smooth=options.smooth,
        band=options.band,
        lines=options.lines,
        labels=options.labels,
        panels=options.panels,
        width=options.width,
    )
    print(f"picture  {out}")
    return 0
