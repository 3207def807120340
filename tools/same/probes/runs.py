"""Runs the scenes on one checkout: on a backend, through a stop after every round, or from another's checkpoints.

Uses public names and documented files of a run's folder only, and is itself run by path, with the checkout on PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import rayfl
from matplotlib.figure import Figure
from rich.console import Console
from safetensors import safe_open

SCENES = Path(__file__).parents[1] / "scenes"
STATEFUL = ("asynchronous", "batch_norm", "client_privacy", "coprefl", "local", "orchestra", "relay", "scaffold")
"""Scenes with state of clients, server, task, schedule or privacy; a stop after each round must not show in them."""
QUIET = Console(quiet=True)


class Stop(rayfl.Callback):
    """Ends the run after a round."""

    after: int

    def on_round(self, run: rayfl.RunSoFar) -> None:
        if run.round is not None and run.round.round == self.after:
            run.stop("to be resumed")


def records(folder: Path, out: Path) -> None:
    """Writes what a run leaves, without seconds, as JSON and text."""
    out.mkdir(parents=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    write(out / "metrics.json", [{key: row[key] for key in row if key != "seconds"} for row in rows])
    (out / "scenario.toml").write_text((folder / "scenario.toml").read_text().replace(str(SCENES), "SCENES"))
    if (folder / "privacy.json").exists():
        write(out / "privacy.json", json.loads((folder / "privacy.json").read_text()))
    if (folder / "clients.parquet").exists():
        clients = pq.read_table(folder / "clients.parquet")
        types = {field.name: str(field.type) for field in clients.schema}
        write(out / "clients.json", {"columns": types, "rows": clients.to_pylist()})
    for path in sorted(folder.rglob("*.safetensors")):
        if "checkpoints" not in path.parts:
            write(out / f"{path.relative_to(folder).with_suffix('')}.json".replace("/", "-"), tensors(path))


def tensors(path: Path) -> dict[str, Any]:
    """Digests of the tensors of a model, and its metadata."""
    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        digests = {
            name: f"{array.dtype} {list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
            for name, array in arrays.items()
        }
        return {"metadata": file.metadata(), "tensors": digests}


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


def scene_by_scene(names: list[str], out: Path, carry_out: Callable[[str, Path], None]) -> None:
    """An error of one scene is its result, and does not stop the others."""
    for name in names:
        try:
            with tempfile.TemporaryDirectory() as folder:
                carry_out(name, Path(folder) / "run")
        except Exception as error:
            (out / name).mkdir(parents=True, exist_ok=True)
            said = str(error) if isinstance(error, rayfl.RayflError) else traceback.format_exc()
            (out / name / "error.txt").write_text(said)


def run(out: Path, backend: Literal["inline", "ray"]) -> None:
    """Runs every scene."""
    names = sorted(path.stem for path in SCENES.glob("[!_]*.toml"))
    names.sort(key=lambda name: name.endswith("_packed"))  # other [resources], for which workers are replaced

    def carry_out(name: str, folder: Path) -> None:
        session.run(SCENES / f"{name}.toml", folder=folder)
        records(folder, out / name)

    with tempfile.TemporaryDirectory() as starts:
        with rayfl.Session(backend=backend, starts=starts, console=QUIET) as session:
            scene_by_scene(names, out, carry_out)


def run_on_ray(out: Path) -> None:
    """Runs every scene on a Ray instance that stays up, with two workers that stay where a run allows it."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=0,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        logging_level="error",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    run(out, "ray")


def stop_and_resume(out: Path, kept: Path) -> None:
    """Stops every stateful scene after each round, and keeps the folder as it is half-way."""

    def carry_out(name: str, folder: Path) -> None:
        scenario = rayfl.load_scenario(SCENES / f"{name}.toml")
        rounds = sum(phase.rounds for phase in scenario.phases)
        rayfl.run(scenario, folder=folder, backend="inline", callbacks=[Stop(name="stop", after=1)], console=QUIET)
        for after in range(2, rounds + 1):
            if after == rounds // 2 + 1:
                shutil.copytree(folder, kept / name)
            stop = Stop(name="stop", after=after)
            rayfl.run(resume=folder, backend="inline", callbacks=[stop] if after < rounds else [], console=QUIET)
        records(folder, out / name)

    scene_by_scene(list(STATEFUL), out, carry_out)


def go_on_from(out: Path, kept: Path) -> None:
    """Resumes the runs that another checkout left half-way."""

    def carry_out(name: str, folder: Path) -> None:
        shutil.copytree(kept / name, folder)
        rayfl.run(resume=folder, backend="inline", console=QUIET)
        records(folder, out / name)

    scene_by_scene([name for name in STATEFUL if (kept / name).exists()], out, carry_out)


def main() -> None:
    assert Path(rayfl.__file__).is_relative_to(os.environ["CHECKOUT"]), rayfl.__file__
    kind, out, *kept = sys.argv[1:]
    # curves.png is not compared, and drawing takes longer than the runs
    Figure.savefig = lambda figure, target, **_: Path(target).touch()  # type: ignore[method-assign, assignment]
    Figure.draw_without_rendering = lambda figure: None  # type: ignore[method-assign]
    {
        "inline": lambda: run(Path(out), "inline"),
        "ray": lambda: run_on_ray(Path(out)),
        "resume": lambda: stop_and_resume(Path(out), Path(kept[0])),
        "checkpoints": lambda: go_on_from(Path(out), Path(kept[0])),
    }[kind]()


if __name__ == "__main__":
    main()
