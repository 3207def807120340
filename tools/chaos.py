"""python -m tools.chaos: kills processes and nodes of runs, and checks that the runs still end with the same bits.

A scenario with relays, client states, a stateful server and private samples runs repeatedly on its own cluster of two
nodes, while a seeded plan kills worker processes, servers, schedulers, nodes and drivers. Runs are resumed when their
driver was killed or when they gave up, for example because no node was available. Every run must end with the bits of
an undisturbed one and leave no process behind. The outcome of each run is appended to a file; when you start the
command again, it continues from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray._private.state import actors
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.runs.archive import RunArchive
from tools.two_nodes import TwoNodes, two_nodes

CLASSES = {"host": "HostActor", "server": "ServerActor", "scheduler": "SchedulerActor"}
KINDS = (*CLASSES, "node", "driver")
MOST_KILLS = 8
"""Maximum per run."""
DEADLINE_S = 120.0
"""Time limit for actors to start, or to end with their driver."""

_DP = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}
_LOCAL = {"steps": 2, "batch_size": 8, "lr": 0.05, "dp": _DP}
_RELAY = {"name": "cyclic", "schedule": "relay", "cohort": 4, "local": _LOCAL}
_STATEFUL = {"name": "stateful", "cohort": 6, "algorithm": "scaffold", "local": _LOCAL}
_ADAPTIVE = {"name": "adaptive", "cohort": 6, "algorithm": "fedadam", "local": _LOCAL}


def scenario(rounds: int) -> Scenario:
    """Returns the scenario, with this number of rounds in each of its three phases."""
    return Scenario.from_tables(
        {
            "name": "chaos",
            "data": {"name": "handwriting", "clients": 12},
            "model": {"name": "lenet5"},
            "phases": [phase | {"rounds": rounds} for phase in (_RELAY, _STATEFUL, _ADAPTIVE)],
            "evaluation": {"every": 5},
            "checkpoint": {"rounds": 5},
            "resources": {"hosts": 2, "relay": "spread", "restarts": 10},
        }
    )


def main() -> int:
    """Runs the check from the command line.

    Returns:
        Exit status 0 if every run ended with the same bits and left nothing behind, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="number of kills in all runs together (default: 20)")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each of the three phases (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the plan of kills (default: 0)")
    parser.add_argument("--records", type=Path, help="file to which outcomes are appended")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rayfl-chaos-") as folder:
        records = options.records or Path(folder) / "chaos.jsonl"
        return 0 if chaos(Path(folder), options.kills, options.rounds, options.seed, records) else 1


def chaos(folder: Path, kills: int, rounds: int, seed: int, records: Path) -> bool:
    """Runs the scenario until this many processes were killed, and prints the outcomes.

    Args:
        folder: Folder for the runs.
        kills: Number of kills in all runs together, including recorded ones.
        rounds: Rounds of each phase.
        seed: Seed of the plan of kills.
        records: Receives a JSON line for each run: what was killed and when, and how it ended. A run whose line is
            removed runs again with the same plan.

    Returns:
        Whether every recorded run ended with the bits of an undisturbed one and left nothing behind.
    """
    file = folder / "chaos.toml"
    file.write_text(scenario(rounds).to_toml())
    undisturbed = rayfl.run(file, backend="inline", folder=folder / "undisturbed", console=Console(quiet=True))
    expected = _results(undisturbed.directory)
    outcomes = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
    with two_nodes() as cluster:
        while (done := sum(len(outcome["kills"]) for outcome in outcomes)) < kills:
            number = next(number for number in count() if number not in {outcome["run"] for outcome in outcomes})
            plan = np.random.default_rng([seed, number])
            outcome = _Run(cluster, file, folder / f"run-{number}", plan, kills - done).outcome(expected)
            outcomes.append({"run": number, "seed": seed, "rounds": rounds} | outcome)
            with records.open("a") as lines:
                lines.write(json.dumps(outcomes[-1]) + "\n")
            print(json.dumps(outcomes[-1]), flush=True)
    killed = Counter(kill["victim"] for outcome in outcomes for kill in outcome["kills"])
    bad = [outcome["run"] for outcome in outcomes if outcome["problem"]]
    print(f"{len(outcomes)} runs, {killed.total()} kills: {', '.join(f'{n} {kind}s' for kind, n in killed.items())}")
    print(f"gave up, but finished when resumed: {sum(outcome['gave_up'] for outcome in outcomes)} times")
    print(f"runs that ended differently from an undisturbed one: {bad or 'none'}")
    return not bad


class _Run:
    """One run whose processes are killed."""

    def __init__(self, cluster: TwoNodes, file: Path, folder: Path, plan: np.random.Generator, most_kills: int) -> None:
        self._cluster, self._folder, self._plan = cluster, folder, plan
        self._planned = min(most_kills, int(plan.integers(1, MOST_KILLS, endpoint=True)))
        self._kills: list[dict[str, Any]] = []
        self._gave_up = 0
        self._log = folder.with_suffix(".log")
        self._started = time.monotonic()
        self._scenario = str(file)
        self._driver = self._start(self._scenario, "--out", str(folder))

    def outcome(self, expected: Any) -> dict[str, Any]:
        """Carries out the plan, waits for the end, and returns the outcome."""
        problem = ""
        while not problem and (self._driver.poll() is None or self._is_resumed()):
            try:
                self._driver.wait(1.0 + self._plan.exponential(5.0))
            except subprocess.TimeoutExpired:
                problem = self._kill() if len(self._kills) < self._planned else ""
            if time.monotonic() - self._started > 30 * 60:
                problem = "it did not end within half an hour"
        if problem:
            self._driver.kill()
        elif self._driver.returncode:
            problem = f"its driver ended with {self._driver.returncode}"
        elif _results(self._run_folder()) != expected:
            problem = "its records or its model differ from those of an undisturbed run"
        problem = problem or self._left_behind()
        if problem:
            print(self._log.read_text(), file=sys.stderr)
        status = json.loads((self._run_folder() / "status.json").read_text()) if not problem else {}
        seconds = round(time.monotonic() - self._started, 1)
        told = {"kills": self._kills, "recoveries": status.get("recoveries"), "gave_up": self._gave_up}
        return told | {"seconds": seconds, "problem": problem}

    def _is_resumed(self) -> bool:
        """Resumes a run that gave up, at most once per kill."""
        if self._driver.returncode != 1 or self._gave_up >= len(self._kills):
            return False
        self._gave_up += 1
        if self._has_begun():
            self._driver = self._start("--resume", str(self._run_folder()))
        else:
            shutil.rmtree(self._folder)
            self._driver = self._start(self._scenario, "--out", str(self._folder))
        return True

    def _has_begun(self) -> bool:
        return bool(list(self._folder.glob("*/scenario.toml")))

    def _kill(self) -> str:
        victim = str(self._plan.choice(KINDS))
        if victim == "driver":
            if not self._has_begun():
                return ""
            self._driver.kill()
            self._driver.wait()
            self._note(victim)
            if problem := self._left_behind():
                return problem
            self._driver = self._start("--resume", str(self._run_folder()))
        elif victim == "node":
            self._cluster.replace_node(first=bool(self._plan.integers(2)))
            self._note(victim)
        else:
            known = sorted(_pids(CLASSES[victim]))
            if known:
                os.kill(int(self._plan.choice(known)), signal.SIGKILL)
                self._note(victim)
        return ""

    def _note(self, victim: str) -> None:
        self._kills.append({"victim": victim, "after_s": round(time.monotonic() - self._started, 1)})

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rayfl.scenario", *arguments, "--address", self._cluster.address]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _run_folder(self) -> Path:
        (folder,) = self._folder.iterdir()
        return folder

    def _left_behind(self) -> str:
        if not _waited(lambda: not _living()):
            return f"actors are left: {[told['ActorClassName'] for told in _living()]}"
        pids = {told["Pid"] for told in actors().values()} - {0}
        if not _waited(lambda: not any(_is_actor(pid) for pid in pids)):
            return f"processes are left: {sorted(pid for pid in pids if _is_actor(pid))}"
        groups = ray.util.placement_group_table()
        if kept := [group for group in groups.values() if group["state"] != "REMOVED"]:
            return f"placement groups are left: {kept}"
        return ""


def _living() -> Sequence[dict[str, Any]]:
    ours = CLASSES.values()
    return [told for told in actors().values() if told["State"] != "DEAD" and told["ActorClassName"] in ours]


def _pids(kind: str) -> set[int]:
    """Process ids of the live actors of a class."""
    alive = [told for told in actors().values() if told["State"] == "ALIVE" and told["ActorClassName"] == kind]
    return {told["Pid"] for told in alive} - {0}  # killing process 0 would kill this whole process group


def _is_actor(pid: int) -> bool:
    try:
        return "Actor" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def _waited(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _results(folder: Path) -> Any:
    """The digest of a run's model, and its metrics without times."""
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in RunArchive(folder).rows]
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(), rows


if __name__ == "__main__":
    sys.exit(main())
