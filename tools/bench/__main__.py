"""python -m tools.bench: runs the measurements and prints a table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from tools.bench import algorithms, checkpoints, clients, fractals, parallel, privacy, relay, start, states, update
from tools.bench.conditions import conditions, pin_to_cores, runnable_programs
from tools.bench.table import Row, as_markdown, print_table

CORES = 2
"""Number of cores that the targets are for."""

BUSY = 0.5
"""Load average above which other programs distort the figures."""

MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "parallel": parallel.measure,
    "relay": relay.measure,
    "start": start.measure,
    "clients": clients.measure,
    "checkpoints": checkpoints.measure,
    "states": states.measure,
    "algorithms": algorithms.measure,
    "privacy": privacy.measure,
    "update": update.measure,
    "fractals": fractals.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=f"Measure rayfl on {CORES} cores of this machine; takes about ten minutes on a quiet one.",
    )
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="run this alone; may be repeated")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table in Markdown, for docs/results/benchmarks.md"
    )
    options = parser.parse_args(arguments)
    load_before = runnable_programs()
    if load_before > BUSY:
        print(f"warning: other programs are running (load average {load_before:.2f})", file=sys.stderr)
    pin_to_cores(CORES)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("RAY_ADDRESS", None)  # every measurement starts and stops its own Ray
    rows = []
    for name in options.only or MEASUREMENTS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += MEASUREMENTS[name]()
    facts = conditions(load_before)
    if options.markdown:
        print(as_markdown(rows, facts))
    else:
        print_table(rows, facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
