"""The options that `rayfl plot` and `rayfl compare` share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Adds the runs and grids to read, and which of their metrics and parts are shown under which labels."""
    parser.add_argument("sources", nargs="+", type=Path, metavar="RUN|GRID", help="the folder of a run or a grid")
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
