"""Times two checkouts in turns: client updates, the import of rayfl, and a run from its start to its end."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles

from tools.same.checkouts import PROBES, Checkout, environment
from tools.same.compare import Difference

PAIRS = 15
UPDATE_BOUND = 1.01
"""For the lower quartile of the ratios of CPU times: noise makes single pairs slower, but not three in four."""
START_PAIRS, START_BOUND = 5, 1.25
"""For the quickest of a few starts, whose noise is larger; only a module too many should show."""


def compare_times(before: Checkout, after: Checkout) -> list[Difference]:
    """Prints the ratios, and returns those beyond their bounds."""
    found = []
    with ExitStack() as stack:
        scratch = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        own = [environment(side, folder) for side, folder in zip((before, after), scratch, strict=True)]
        pairs = list(_updates(own, scratch))
        lower, median, upper = quantiles([second / first for first, second in pairs], n=4)
        print(f"client update  {median:.3f} of before; quartiles of {PAIRS} pairs {lower:.3f} and {upper:.3f}")
        if lower > UPDATE_BOUND:
            found.append(Difference("timing/client_update:lower_quartile", f"at most {UPDATE_BOUND}", f"{lower:.3f}"))
        tiny = "import rayfl, scenes; rayfl.run(scenes.SCENES['plain'], backend='inline')"
        starts = {"import": ["-c", "import rayfl"], "run": ["-c", tiny]}
        for name, command in starts.items():
            times = [[_cpu(command, own[n], scratch[n]) for n in range(2)] for _ in range(START_PAIRS)]
            least = [min(pair[n] for pair in times) for n in range(2)]
            print(f"{name:13}  {least[1] / least[0]:.3f} of before, {least[0]:.2f} s of CPU; the best of {START_PAIRS}")
            if least[1] > START_BOUND * least[0]:
                bound = f"at most {START_BOUND * least[0]:.2f} s"
                found.append(Difference(f"timing/{name}:seconds", bound, f"{least[1]:.2f} s"))
    return found


def _updates(environments: Sequence[dict[str, str]], scratch: Sequence[Path]) -> Iterator[tuple[float, float]]:
    """CPU seconds of the same client update on both, side by side in two processes that take turns."""
    command = [sys.executable, str(PROBES / "runs.py"), "timed"]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(command, env=own, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for own, folder in zip(environments, scratch, strict=True)
        ]

        def seconds(worker: subprocess.Popen[str]) -> float:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            return float(worker.stdout.readline())

        for number in range(-1, PAIRS):  # the first pair warms up
            order = workers if number % 2 else workers[::-1]
            times = {worker.pid: seconds(worker) for worker in order}
            if number >= 0:
                yield times[workers[0].pid], times[workers[1].pid]
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()


def _cpu(command: Sequence[str], own: dict[str, str], folder: Path) -> float:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run([sys.executable, *command], env=own, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return spent() - before
