"""python -m tools.meta_steps RECORDS: prints the lengths of meta-steps in pre-training, and query losses.

RECORDS is a folder from `tools.start_records`; the table is printed as Markdown. The length of a meta-step is relative
to the clients' mean step in the same round, over all rounds and seeds. Query losses and their variance over the cohort
are from before the meta-step, in the last rounds of pre-training.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

LAST = 20
"""Rounds at the end of pre-training over which query losses are averaged."""

HEADER = (
    "| | meta-step / mean step: mean | 5 to 95 % of rounds | query loss at the end | its variance over clients |",
    "|---|---|---|---|---|",
)


def row_of(name: str, rounds: Sequence[Mapping[str, Any]]) -> str:
    """Returns one row of the table.

    Args:
        name: Name of the grid row.
        rounds: Its lines in pretraining.parquet that have a meta-step.
    """
    ratios = np.array([line["meta_ratio"] for line in rounds])
    end = max(line["round"] for line in rounds) - LAST
    late = [line for line in rounds if line["round"] > end]
    loss, variance = (np.mean([line[column] for line in late]) for column in ("query_loss", "query_loss_variance"))
    low, high = np.percentile(ratios, [5, 95])
    return f"| {name} | {ratios.mean():.2f} | {low:.2f} to {high:.2f} | {loss:.3f} | {variance:.3f} |"


def table(folder: Path) -> str:
    """Returns the table of a grid, with the rows that report meta-steps."""
    lines = pq.read_table(folder / "pretraining.parquet").to_pylist()
    by_row: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        if line.get("meta_ratio") is not None:
            by_row.setdefault(line["row"], []).append(line)
    return "\n".join([*HEADER, *(row_of(name, rounds) for name, rounds in by_row.items())])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.meta_steps", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("records", type=Path, help="a folder from tools.start_records")
    print(table(parser.parse_args(arguments).records))


if __name__ == "__main__":
    main()
