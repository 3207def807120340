"""python -m tools.check_cluster: runs a job on a real Ray cluster of several local nodes and checks its bits.

Starts a head node and more nodes with `ray start`, all on loopback and with their own token, submits
`python -m rayfl.scenario femnist_cyclic` with `ray job submit`, and compares the resulting model with that of the
inline backend, which does not use Ray. Ends only the processes that it started.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_TIMEOUT_S = 90.0


def main() -> int:
    """Runs the check from the command line.

    Returns:
        Exit status 0 if the job used all nodes and its model has the same bits as the inline backend's, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.check_cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3, help="nodes with one CPU each (default: 3)")
    parser.add_argument("--clients", type=int, default=500, help="clients of the scenario (default: 500)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rayfl-") as folder:
        return 0 if check(Path(folder), options.nodes, options.clients) else 1


def check(folder: Path, nodes: int, clients: int) -> bool:
    """Runs the job and the comparison, and prints the result.

    Args:
        folder: Folder for the runs.
        nodes: Number of nodes, one CPU each.
        clients: Number of clients of the scenario.

    Returns:
        Whether all nodes had a worker process and the bits are the same.
    """
    overrides = [
        "data.source=generated",
        f"data.clients={clients}",
        "phases.0.rounds=2",
        "phases.0.cohort=10",
        "phases.1.rounds=2",
        "phases.1.cohort=10",
        "phases.1.local.epochs=1",
        "resources.relay=spread",
    ]
    command = ["-m", "rayfl.scenario", "femnist_cyclic", *overrides, "--out"]
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0"}
    with cluster(nodes, environment) as dashboard:
        submit = ["ray", "job", "submit", "--address", dashboard, "--working-dir", str(ROOT), "--"]
        started = time.monotonic()
        job = _submitted([*_ray(submit), sys.executable, *command, str(folder / "job")], environment)
        print(job.stdout)
        if job.returncode:
            print(job.stderr, file=sys.stderr)
            return False
        print(f"job: {time.monotonic() - started:.1f} s on {nodes} nodes with {clients} clients")
    subprocess.run([sys.executable, *command, str(folder / "inline"), "--backend", "inline"], cwd=ROOT, check=True)
    digests = {name: _digest(folder / name) for name in ("job", "inline")}
    same = digests["job"] == digests["inline"]
    used = sum(f"127.0.0.{node + 2}" in job.stdout for node in range(nodes))
    print(f"nodes with a worker process: {used} of {nodes}; same bits as inline: {'yes' if same else 'NO'} ({digests})")
    return same and used == nodes


def _submitted(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Submits the job and waits for it; retries while a head node that has just started has no job agent yet."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        job = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        if "No available agent" not in job.stderr or time.monotonic() > deadline:
            return job


@contextlib.contextmanager
def cluster(nodes: int, environment: dict[str, str]) -> Iterator[str]:
    """Starts a cluster with one CPU per node and stops it afterwards; node i listens on 127.0.0.(i + 2).

    Args:
        nodes: Number of nodes, including the head.
        environment: Environment variables of all Ray processes.

    Yields:
        The address of the dashboard.

    Raises:
        TimeoutError: A node did not start.
    """
    head, port, dashboard = "127.0.0.2", _free_port(), _free_port()
    common = ["--block", "--num-cpus=1", "--object-store-memory=200000000"]

    def agent() -> str:
        """Gives a node's agent its own port: by default all Ray nodes of a machine use the same one."""
        return f"--dashboard-agent-listen-port={_free_port()}"

    with contextlib.ExitStack() as stack:
        # Ray puts its sockets here, and their paths must be short
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rf-", ignore_cleanup_errors=True)))
        first = [f"--dashboard-host={head}", f"--dashboard-port={dashboard}", f"--temp-dir={folder / '0'}"]
        start = ["ray", "start", "--head", f"--node-ip-address={head}", f"--port={port}", *first, *common, agent()]
        process = stack.enter_context(_running(start, environment, folder / "head.log"))
        _wait_until(lambda: _listens(head, dashboard), process, folder / "head.log")
        for node in range(1, nodes):
            log = folder / f"node{node}.log"
            start = ["ray", "start", f"--address={head}:{port}", f"--node-ip-address=127.0.0.{node + 2}", *common]
            # a node that shares a folder with others unpacks the job's package anew below their processes
            start += [agent(), f"--temp-dir={folder / str(node)}"]
            process = stack.enter_context(_running(start, environment, log))
            # one after another: nodes that start on one machine at the same moment take each other's names
            _wait_until(functools.partial(_has_nodes, f"{head}:{port}", node + 1, environment), process, log)
        yield f"http://{head}:{dashboard}"


def _ray(command: Sequence[str]) -> list[str]:
    """Ray's command line under this Python."""
    return [sys.executable, "-m", "ray.scripts.scripts", *command[1:]]


@contextlib.contextmanager
def _running(command: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(_ray(command), env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _wait_until(there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not there():
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"a node did not start:\n{log.read_text()}")
        time.sleep(0.3)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _has_nodes(address: str, nodes: int, environment: dict[str, str]) -> bool:
    count = f"import ray; ray.init('{address}', log_to_driver=False); print(len(ray.nodes()))"
    seen = subprocess.run([sys.executable, "-c", count], env=environment, capture_output=True, text=True)
    return seen.stdout.strip() == str(nodes)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port: int = probe.getsockname()[1]
        return port


def _digest(out: Path) -> str:
    (model,) = out.glob("*/model.safetensors")
    return hashlib.sha256(model.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
