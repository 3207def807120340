"""Runs the scenes on a checkout: on a backend, with a stop after every round, from another's checkpoints, or timed.

Uses public names and documented files of a run's folder alone; started by path, with the checkout on PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import tomli_w
from matplotlib.figure import Figure
from rich.console import Console
from safetensors import safe_open
from scenes import SCENES, STATEFUL  # type: ignore[import-not-found]

import rayfl

QUIET = Console(quiet=True)
MANY = {"phases.0.cohort": 1, "phases.0.local": {"steps": 4000, "batch_size": 4, "lr": 0.01}, "checkpoint.rounds": 0}


class Stop(rayfl.Callback):
    """Ends the run after a round."""

    after: int

    def on_round(self, run: rayfl.RunSoFar) -> None:
        if run.round is not None and run.round.round == self.after:
            run.stop("to be resumed")


class Clock(rayfl.Callback):
    """Prints the CPU seconds of the only round, without the start and the end of the run."""

    _seconds: float = 0.0

    def on_start(self, run: rayfl.RunSoFar) -> None:
        self._seconds = -time.process_time()

    def on_round(self, run: rayfl.RunSoFar) -> None:
        print(self._seconds + time.process_time(), flush=True)


def write_records(folder: Path, out: Path) -> None:
    """Writes what a run leaves, without seconds, as JSON."""
    out.mkdir(parents=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    write(out / "metrics.json", [{key: row[key] for key in row if key != "seconds"} for row in rows])
    (out / "scenario.toml").write_text((folder / "scenario.toml").read_text().replace(str(Path.cwd()), "SCENES"))
    if (folder / "privacy.json").exists():
        write(out / "privacy.json", json.loads((folder / "privacy.json").read_text()))
    if (folder / "clients.parquet").exists():
        clients = pq.read_table(folder / "clients.parquet")
        types = {field.name: str(field.type) for field in clients.schema}
        write(out / "clients.json", {"columns": types, "rows": clients.to_pylist()})
    for path in (folder / "model.safetensors", *folder.glob("models/*.safetensors")):
        write(out / f"{path.stem}.json", tensors(path))


def tensors(path: Path) -> dict[str, Any]:
    """The metadata of a model, and a digest of each tensor."""
    with safe_open(path, "np") as file:
        digests = {}
        for name in file.keys():  # noqa: SIM118
            array = file.get_tensor(name)
            digests[name] = f"{array.dtype} {list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
        return {"metadata": file.metadata(), "tensors": digests}


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


def one_by_one(names: Iterable[str], out: Path, run: Callable[[str, Path], object]) -> None:
    """Runs scenes, each in a folder that is then removed. An error does not stop the others."""
    for name in names:
        try:
            with tempfile.TemporaryDirectory() as folder:
                run(name, Path(folder) / "run")
                write_records(Path(folder) / "run", out / name)
        except Exception as error:
            (out / name).mkdir(parents=True, exist_ok=True)
            said = str(error) if isinstance(error, rayfl.RayflError) else traceback.format_exc()
            (out / name / "error.txt").write_text("failed " + said.replace(str(Path.cwd()), "SCENES"))


def start_ray(tries: int = 5) -> None:
    """Starts a small Ray instance; tries again, since on a busy machine Ray does not wait long enough for itself."""
    import ray

    # loopback, of which 127.0.0.1 would be replaced; agents compete for ports on one address
    address = f"127.0.4.{os.getpid() % 250 + 1}"
    small = {"num_cpus": 2, "num_gpus": 0, "object_store_memory": 100 * 2**20, "_node_ip_address": address}
    try:
        ray.init("local", **small, include_dashboard=False, log_to_driver=False)  # type: ignore[arg-type]
    except Exception as error:  # Ray raises a plain Exception
        if tries == 1 or "timed out" not in str(error):
            raise
        start_ray(tries - 1)


def whole(backend: Literal["inline", "ray"], out: Path) -> None:
    """Runs every scene. On Ray, an instance stays up, and so do its workers as long as [resources] are the same."""
    if backend == "ray":
        start_ray()
    names = sorted(SCENES, key=lambda name: SCENES[name]["resources"]["relay"] == "packed")
    with rayfl.Session(backend=backend, starts="starts", console=QUIET) as session:
        one_by_one(names, out, lambda name, folder: session.run(f"{name}.toml", folder=folder))


def stopped(kept: Path, out: Path) -> None:
    """Stops every stateful scene after each round, resumes it, and keeps the folder as it is half-way."""

    def run(name: str, folder: Path) -> None:
        rounds = sum(phase["rounds"] for phase in SCENES[name]["phases"])
        for after in range(1, rounds + 1):
            if after == rounds // 2 + 1:
                shutil.copytree(folder, out / kept / name)
            place: Any = {"resume": folder} if after > 1 else {"scenario": f"{name}.toml", "folder": folder}
            stop = [Stop(name="stop", after=after)] if after < rounds else []
            rayfl.run(**place, backend="inline", callbacks=stop, console=QUIET)

    one_by_one(STATEFUL, out, run)


def from_checkpoints(kept: Path, out: Path) -> None:
    """Resumes what another checkout left half-way."""

    def run(name: str, folder: Path) -> None:
        shutil.copytree(kept / name, folder)
        rayfl.run(resume=folder, backend="inline", console=QUIET)

    one_by_one(STATEFUL, out, run)


def timed() -> None:
    """Trains one client for many small steps each time that a line comes in."""
    with rayfl.Session(backend="inline", console=QUIET) as session:
        for number, _ in enumerate(sys.stdin):
            session.run(SCENES["plain"], overrides=MANY, folder=f"timed-{number}", callbacks=[Clock])


def main() -> None:
    assert Path(rayfl.__file__).is_relative_to(os.environ["CHECKOUT"]), rayfl.__file__
    kind, *folders = sys.argv[1:]
    for name, tables in SCENES.items():
        Path(f"{name}.toml").write_text(tomli_w.dumps(tables))
    # drawing curves.png, which is not compared, takes longer than a run
    Figure.savefig = lambda figure, target, **_: Path(target).touch()  # type: ignore[method-assign]
    kinds: dict[str, Callable[..., None]] = {
        "inline": partial(whole, "inline"),
        "ray": partial(whole, "ray"),
        "resume": stopped,
        "checkpoints": from_checkpoints,
        "timed": timed,
    }
    kinds[kind](*map(Path, folders))


if __name__ == "__main__":
    main()
