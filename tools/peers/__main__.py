"""python -m tools.peers --pfl PYTHON --flower PYTHON: rounds of rayfl, pfl-research and Flower on the same work.

Every system trains cohorts of clients by one step of one sample on a network of 100 parameters, as `scale_cohort` does.
The other two run in virtual environments of their own, whose Python is named (`uv pip install pfl[pytorch]`,
`uv pip install flwr[simulation] torch`); one that is not named is left out.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rayfl.errors import ResourceError
from rayfl.studies.scale.measure import SAMPLED, cost
from rayfl.studies.scale.processes import DRIVER, peak_memory, processor_seconds

COLUMNS = ("system", "registered clients", "clients a round", "s a round", "CPU s a round", "memory, MB")
ROUNDS = 6
"""As many as those of `scenarios/scale`."""


class Row(NamedTuple):
    """What a round took: seconds, processor seconds, and MB of all processes at the peak (proportional set size)."""

    round_s: float
    processor_s: float
    megabytes: float


def of_rayfl(clients: int, cohort: int, hosts: int, timeout_s: float) -> Row:
    """Measures rayfl on Ray."""
    sizes = [f"data.options.clients={clients}", f"phases.scale.cohort={cohort}", f"resources.hosts={hosts}"]
    found = cost("scale_cohort", sizes, timeout_s)
    return Row(found.round_s, sum(found.processor_s.values()), sum(found.memory.values()) / 1e6)


def of_peer(python: str, script: str, clients: int, cohort: int, timeout_s: float) -> Row:
    """Measures a script that prints a line after every round.

    Raises:
        ResourceError: It ended early, or takes longer.
    """
    command = [python, str(Path(__file__).with_name(script)), *map(str, (clients, cohort, ROUNDS))]
    times, marks = list[float](), list[float]()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process,
        peak_memory() as peak,
    ):
        limit = threading.Timer(timeout_s, process.terminate)
        limit.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round ") and int(line.split()[1]):
                times.append(time.monotonic())
                if len(times) in (SAMPLED, ROUNDS):
                    seconds = processor_seconds()
                    marks.append(sum(seconds.values()) - seconds[DRIVER])
        limit.cancel()
    if len(times) < ROUNDS:
        raise ResourceError(f"{len(times)} of {ROUNDS} rounds within {timeout_s:.0f} s")
    later = times[SAMPLED - 1 :]
    rounds = [after - before for before, after in pairwise(later)]
    memory = sum(peak.values()) - peak[DRIVER]
    return Row(statistics.median(rounds), (marks[1] - marks[0]) / len(rounds), memory / 1e6)


def rows(options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yields a row of the table for every system and size, the smallest sizes first."""
    for clients, cohort in [(1000, size) for size in options.cohort] + [(size, 10) for size in options.clients]:
        systems = {f"rayfl, {hosts} worker{'s' * (hosts > 1)}": (hosts, "") for hosts in (1, 2)}
        systems |= {"pfl, one process": (0, "pfl")} if options.pfl else {}
        systems |= {"Flower, 2 actors": (0, "flower")} if options.flower else {}
        for name, (hosts, peer) in systems.items():
            try:
                if hosts:
                    row = of_rayfl(clients, cohort, hosts, options.timeout)
                else:
                    row = of_peer(getattr(options, peer), f"{peer}_rounds.py", clients, cohort, options.timeout)
                figures = [f"{row.round_s:.3g}", f"{row.processor_s:.3g}", f"{row.megabytes:,.0f}"]
            except ResourceError as error:
                figures = [str(error), "", ""]
            yield (name, f"{clients:,}", f"{cohort:,}", *figures)


def sizes(text: str) -> list[int]:
    """Whole numbers separated by commas."""
    return [int(float(part)) for part in text.split(",") if part]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.peers", description="Measure rounds of three simulators.")
    parser.add_argument("--pfl", metavar="PYTHON", help="the Python that has pfl-research")
    parser.add_argument("--flower", metavar="PYTHON", help="the Python that has Flower")
    parser.add_argument("--cohort", type=sizes, default=[10, 100, 1000], help="of 1 000 clients (10,100,1000)")
    parser.add_argument("--clients", type=sizes, default=[], help="with 10 a round, beside these")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for each (default: 120)")
    options = parser.parse_args(arguments)
    for row in (COLUMNS, ("---",) * len(COLUMNS)):
        print("| " + " | ".join(row) + " |")
    for row in rows(options):
        print("| " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
