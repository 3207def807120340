"""Machine, versions and date of the measurements."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "ray", "numpy", "pyarrow")


def pin_to_cores(count: int) -> None:
    """Binds this process, and all that it starts, to the first `count` cores that it may use.

    Raises:
        SystemExit: There are fewer.
    """
    available = sorted(os.sched_getaffinity(0))
    if len(available) < count:
        sys.exit(f"error: the targets are for {count} cores, but this process may use only {len(available)}")
    os.sched_setaffinity(0, available[:count])


def runnable_programs() -> float:
    """Returns the load average of the last minute; it should be close to 0 for measurements."""
    return os.getloadavg()[0]


def conditions(load_before: float, program: str = "tools.bench") -> list[str]:
    """Returns one line each for date, machine and versions.

    Args:
        load_before: `runnable_programs()` at the start.
        program: The module that was run.
    """
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores used"
    return [
        f"{datetime.now():%Y-%m-%d}, `{' '.join([f'python -m {program}', *sys.argv[1:]])}`",
        f"{_cpu_model()}, {cores}, load average before the start {load_before:.2f}",
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    ]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
