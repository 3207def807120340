"""python -m tools.soak: runs thousands of rounds on Ray and checks that memory and open files stay flat.

A relay phase and a stateful parallel phase, both with checkpoints, run on a cluster that this command starts. It
regularly samples the unshared memory (USS) and the open file handles of every process, and the bytes in the object
store. A line is fitted to the second half of each phase by least squares; a slope above its bound fails the check.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import ray
from ray._private.internal_api import node_stats
from ray._private.state import actors
from scipy import stats

from rayfl.backends.ray.log import RayLog, ray_text_in
from rayfl.config.scenario import Scenario

ACTORS = {"HostActor": "host", "ServerActor": "server", "SchedulerActor": "scheduler"}
LOOPBACK = "127.0.3.1"
SAMPLED_EVERY_S = 1.0
MIB = 2**20
BOUNDS = {"memory": 0.25 * MIB, "store": 0.25 * MIB, "handles": 0.1}
"""Largest growth per 1 000 rounds: 0.25 MiB, and one file handle per 10 000 rounds."""

_LOCAL = {"steps": 1, "batch_size": 4, "lr": 0.01}


class Slope(NamedTuple):
    """Growth of one quantity per 1 000 rounds.

    Attributes:
        phase: The phase.
        what: `memory`, `handles` or `store`.
        process: The process.
        level: Median over the second half of the phase.
        slope: Least-squares slope over the second half of the phase.
        error: Half the width of the 95 % interval of the slope, assuming independent samples.
    """

    phase: str
    what: str
    process: str
    level: float
    slope: float
    error: float

    @property
    def too_steep(self) -> bool:
        """Whether it grows faster than its bound, beyond the interval."""
        return self.slope - self.error > BOUNDS[self.what]


def scenario(relay_rounds: int, parallel_rounds: int) -> Scenario:
    """Returns the scenario: a small network, eight clients, two workers, a checkpoint every 250 rounds."""
    phases = [
        {"name": "relay", "schedule": "relay", "rounds": relay_rounds, "cohort": 2, "local": _LOCAL},
        {"name": "parallel", "rounds": parallel_rounds, "cohort": 4, "algorithm": "scaffold", "local": _LOCAL},
    ]
    return Scenario.from_tables(
        {
            "name": "soak",
            "data": {"name": "handwriting", "clients": 8},
            "model": {"name": "mlp", "hidden": [64]},
            "phases": phases,
            "evaluation": {"every": 500},
            "checkpoint": {"rounds": 250},
            "resources": {"hosts": 2},
        }
    )


def main() -> int:
    """Runs the check from the command line.

    Returns:
        Exit status 0 if the run finished and nothing grew faster than its bound, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--relay-rounds", type=int, default=2000, help="default: 2000")
    parser.add_argument("--parallel-rounds", type=int, default=1000, help="default: 1000")
    parser.add_argument("--records", type=Path, help="file for the samples and slopes, as JSON lines")
    options = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="rayfl-soak-") as folder,
        (options.records or Path(os.devnull)).open("w", buffering=1) as records,
    ):
        for sample in soak(Path(folder), options.relay_rounds, options.parallel_rounds):
            samples.append(sample)
            records.write(json.dumps(sample) + "\n")
        found = slopes(samples)
        records.writelines(json.dumps(slope._asdict()) + "\n" for slope in found)
    seconds = samples[-1]["seconds"]
    print(f"{options.relay_rounds} relay rounds and {options.parallel_rounds} parallel rounds in {seconds:.0f} s")
    print("per 1 000 rounds, over the second half of each phase:")
    for slope in found:
        print(_in_words(slope))
    return 1 if any(slope.too_steep for slope in found) else 0


def soak(folder: Path, relay_rounds: int, parallel_rounds: int) -> Iterator[dict[str, Any]]:
    """Runs the scenario in another process.

    Args:
        folder: Folder for the run.
        relay_rounds: Rounds of the first phase.
        parallel_rounds: Rounds of the second phase.

    Yields:
        A sample of all processes about every second: phase, round, seconds, memory, handles, store.
    """
    file = folder / "soak.toml"
    file.write_text(scenario(relay_rounds, parallel_rounds).to_toml())
    started = time.monotonic()
    with _cluster() as address, (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "rayfl.scenario", str(file), "--out", str(folder / "runs")]
        driver = subprocess.Popen([*command, "--address", address], stdout=log, stderr=subprocess.STDOUT)
        try:
            while driver.poll() is None:
                time.sleep(SAMPLED_EVERY_S)
                status = _status(folder / "runs")
                round = status["committed_rounds"] if status else 0
                if 0 < round < relay_rounds + parallel_rounds and (sample := _sample(driver.pid)):
                    phase = "relay" if round < relay_rounds else "parallel"
                    seconds = time.monotonic() - started
                    yield {"phase": phase, "round": round, "seconds": seconds} | sample
        finally:
            driver.kill()
            driver.wait()
        if driver.returncode:
            raise SystemExit(f"the run ended with {driver.returncode}:\n{(folder / 'log').read_text()}")


def slopes(samples: Sequence[dict[str, Any]]) -> list[Slope]:
    """Fits a line to every measured quantity over the second half of each phase."""
    found = []
    for phase in dict.fromkeys(sample["phase"] for sample in samples):
        rounds = [sample["round"] for sample in samples if sample["phase"] == phase]
        middle = (rounds[0] + rounds[-1]) / 2
        late = [sample for sample in samples if sample["phase"] == phase and sample["round"] >= middle]
        for what in BOUNDS:
            for process in late[0][what]:
                points = [(sample["round"], sample[what][process]) for sample in late if process in sample[what]]
                x, y = np.array(points, np.float64).T
                line = stats.linregress(x / 1000, y)
                width = stats.t.ppf(0.975, max(1, len(x) - 2)) * np.nan_to_num(
                    line.stderr
                )  # nan if nothing ever changes
                found.append(Slope(phase, what, process, float(np.median(y)), float(line.slope), float(width)))
    return found


def _in_words(slope: Slope) -> str:
    scale, unit = (1.0, "") if slope.what == "handles" else (MIB, " MiB")
    level, grows, error = (value / scale for value in (slope.level, slope.slope, slope.error))
    verdict = "  TOO STEEP" if slope.too_steep else ""
    return (
        f"{slope.phase:9}{slope.what:8}{slope.process:14}{level:9.2f}{unit}  {grows:+.4f}{unit} ± {error:.4f}{verdict}"
    )


def _sample(driver: int) -> dict[str, Any] | None:
    """Memory and file handles by process, and bytes in the object store; None if a process has just ended."""
    counted: dict[str, int] = {}
    memory, handles = {}, {}
    try:
        for name, pid in _processes(driver):
            number = counted[name] = counted.get(name, 0) + 1
            process, key = psutil.Process(pid), f"{name} {number}" if name == "host" else name
            memory[key], handles[key] = process.memory_full_info().uss, process.num_fds()
    except psutil.NoSuchProcess:
        return None
    return {"memory": memory, "handles": handles, "store": {"object store": _store_bytes()}}


def _processes(driver: int) -> Iterator[tuple[str, int]]:
    yield "driver", driver
    for told in sorted(actors().values(), key=lambda told: told["Pid"]):
        if told["State"] == "ALIVE" and told["ActorClassName"] in ACTORS:
            yield ACTORS[told["ActorClassName"]], told["Pid"]
    node: Any = ray._private.worker._global_node
    for kind in ("raylet", "gcs_server"):
        yield kind, node.all_processes[kind][0].process.pid


def _store_bytes() -> int:
    (node,) = ray.nodes()
    found = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
    return int(found.store_stats.object_store_bytes_used)


def _status(runs: Path) -> dict[str, Any] | None:
    for path in runs.glob("*/status.json"):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return None


@contextmanager
def _cluster() -> Iterator[str]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with ray_text_in(RayLog()):
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=0,
            object_store_memory=100 * MIB,
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
        )
        try:
            yield ray.get_runtime_context().gcs_address
        finally:
            ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
