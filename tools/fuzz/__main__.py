"""python -m tools.fuzz: reads thousands of damaged files, each reader in a process with limited memory.

An input is a set of valid files in a reader's format, with random damage that depends on the seed, the name of the
reader and the number of the input. A reader may accept it, or reject it with a rayfl error that names the file.
Anything else is a failure: another exception, a traceback, a crash, more than 20 seconds, or more than a gigabyte of
memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.fuzz.fuzzing import fuzz
from tools.fuzz.targets import TARGETS

SHOWN = 3
"""Number of failures printed per reader."""


def main() -> int:
    """Runs the command.

    Returns:
        Exit status 0 if every input was read or rejected, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000, help="number of inputs per reader (default: 1000)")
    parser.add_argument("--seconds", type=float, default=600, help="time limit per reader (default: 600)")
    parser.add_argument("--only", nargs="+", choices=TARGETS, metavar="READER", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: 0)")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for inputs that failed")
    options = parser.parse_args()
    print(f"{'reader':21}{'inputs':>8}{'read':>8}{'rejected':>9}{'failed':>8}{'seconds':>9}")
    failed = 0
    for name in options.only or TARGETS:
        started = time.monotonic()
        counts, failures = fuzz(name, options.seed, options.first, options.inputs, options.seconds, options.keep)
        failed += len(failures)
        took = time.monotonic() - started
        figures = f"{counts.total():8}{counts['read']:8}{counts['rejected']:9}{counts['failed']:8}{took:9.0f}"
        print(f"{name:21}{figures}", flush=True)
        for number, detail in failures[:SHOWN]:
            print(f"  input {number}: {' | '.join(detail.strip().splitlines()[-3:])}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
