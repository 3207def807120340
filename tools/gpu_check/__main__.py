"""python -m tools.gpu_check: runs the checks on the GPU of this machine and prints a table."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tools.bench.conditions import conditions, runnable_programs
from tools.gpu_check.scene import Device, Finding
from tools.gpu_check.sections import SECTIONS, findings

COLUMNS = ("section", "check", "result", "holds", "from")
HOLDS = {True: "yes", False: "NO", None: ""}
NO_GPU = 2
"""Exit status on a machine without a GPU."""


def cells(section: str, finding: Finding) -> tuple[str, ...]:
    """Returns a finding's row of the table."""
    return (section, finding.name, finding.figure, HOLDS[finding.holds], finding.detail)


def as_markdown(rows: Sequence[tuple[str, ...]], facts: Sequence[str]) -> str:
    """Returns a GitHub table with the conditions as a list below it."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]
    return "\n".join([*table, "", *(f"- {fact}" for fact in facts), ""])


def machine(device: Device, load_before: float) -> list[str]:
    """Returns one line each for date, processor, versions and GPU."""
    facts = conditions(load_before, "tools.gpu_check")
    if device.is_cuda:
        gpu = torch.cuda.get_device_properties(0)
        facts.append(f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}")
    return facts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_check",
        description="Check and time rayfl on the first GPU of this machine; takes about eight minutes.",
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="run this alone; may be repeated")
    parser.add_argument("--budget", type=float, default=480, metavar="SECONDS", help="for everything (default: 480)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too, after every line")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: try the checks without a GPU")
    options = parser.parse_args(arguments)
    device, started = Device(options.device), time.monotonic()
    if device.is_cuda and not torch.cuda.is_available():
        print(f"error: PyTorch {torch.__version__} sees no GPU here; --device cpu tries the checks", file=sys.stderr)
        return NO_GPU
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the running section ends too
    os.environ.pop("RAY_ADDRESS", None)  # every run on Ray starts and stops its own cluster
    facts, rows = machine(device, runnable_programs()), []
    print(*facts, sep="\n", flush=True)
    for name in options.only or SECTIONS:
        for finding in findings(SECTIONS[name], device, options.budget - (time.monotonic() - started)):
            rows.append(cells(name, finding))
            print(f"{time.monotonic() - started:4.0f} s", *filter(None, rows[-1]), sep=" | ", flush=True)
            if options.markdown:
                options.markdown.write_text(as_markdown(rows, facts), encoding="utf-8")
    return int(any(row[3] == HOLDS[False] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
