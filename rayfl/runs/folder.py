"""The folder of a run: the names of its files, and checks of it before it has any content.

Loads neither PyTorch nor pyarrow.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from rayfl.errors import ResourceError

METRICS_FILE = "metrics.jsonl"
ENVIRONMENT_FILE = "environment.json"
SCENARIO_FILE = "scenario.toml"
CLIENTS_FILE = "clients.parquet"
PRIVACY_FILE = "privacy.json"
CONFUSION_FILE = "confusion.json"
SPLIT_FILE = "split.json"

CLIENT_PARTS = ".clients.parquet.*.*"
"""Parts of clients.parquet, merged at the end."""

MODELS = "models"
"""The folder of models of some rounds."""

CHECKPOINTS = "checkpoints"
"""The folder of manifests."""

STATES = "states"
"""The folder in it with the states that manifests name."""


def model_of_phase(number: int, name: str) -> str:
    """The file of the model at the end of a phase, such as "models/phase_1_cyclic.safetensors"; `number` is from 0."""
    legible = re.sub(r"[^\w.+=-]+", "_", name)
    return f"{MODELS}/phase_{number + 1}_{legible}.safetensors"


def check_writable(out: Path, todo: str = "choose another one with --out") -> None:
    """Creates the folder `out`, and a temporary file in it as a check.

    Args:
        out: The folder.
        todo: What an error asks for.

    Raises:
        ResourceError: The folder is not writable.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ResourceError(f"cannot write to the output folder '{out}': {error.strerror}; {todo}") from error


def check_holds_no_run(folder: Path) -> None:
    """Creates the folder, and checks that it is writable and has no records yet.

    A run that was killed before it began, as it waited for room on a cluster, left an empty metrics.jsonl at most.

    Raises:
        ResourceError: The folder is not writable, or already has the records of a run.
    """
    check_writable(folder, "choose another one")
    metrics = folder / METRICS_FILE
    if metrics.exists() and (metrics.stat().st_size or (folder / SCENARIO_FILE).exists()):
        raise ResourceError(f"'{folder}' already has the records of a run: remove them, or choose another folder")


def no_run_in(place: object) -> ResourceError:
    """The error for a place without a run."""
    return ResourceError(f"'{place}' has no run to resume: there is no {SCENARIO_FILE}")


def new_folder(out: Path, name: str, now: datetime) -> Path:
    """Makes a new folder `<out>/<name>-<time>`; a second one within the same second ends in -2, and so on.

    Raises:
        ResourceError: `out` is not writable.
    """
    check_writable(out)
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    for folder in itertools.chain([out / stem], (out / f"{stem}-{n}" for n in itertools.count(2))):
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("the names never end")


FILES: Mapping[str, str] = {
    "scenario.toml": "The scenario with every default and absolute paths; you can run it again.",
    "status.json": "Whether the run is running or how it ended, the reason, and the round of the saved model.",
    "metrics.jsonl": "A line for each evaluated round.",
    "clients.parquet": "Scores and reported scalars of single clients, if the scenario asks for either.",
    "split.json": "Samples and classes by client, of at most 200 clients evenly spread over all; not in private runs.",
    "confusion.json": "With the metrics `recall`, `precision` or `f1`: the confusion matrix of the test samples in the "
    "last evaluated round, a row for each label with its samples by predicted class.",
    "privacy.json": "In runs with `local.dp` or `phases.N.dp`: the guarantee, and epsilon so far.",
    "model.safetensors": "The final model, or the model of the last committed round, under PyTorch's names.",
    "environment.json": "Versions, devices, worker processes, digests of the data and of your code, the seed, the "
    "place in a grid, and the metric that ranks rounds.",
    "curves.png": "Learning curves with the phases marked.",
    "report.html": "The page that `rayfl report` writes.",
    "checkpoints/": "Checkpoints to resume from.",
    "ledger.jsonl": "In runs with `secure` noise: everything that a round may release, written before it begins.",
    "ray.log": "Messages from Ray, in runs on Ray.",
    "run.log": "Printed output of a submitted run.",
    "best.safetensors": "The model of the best evaluated round, with the callback `best_model`.",
    "models/": "The model at the end of each phase but the last (`phase_1_cyclic.safetensors`), and models of "
    "some rounds, with the callback `periodic_model`.",
    "tensorboard/": "Events for TensorBoard, with the callback `tensorboard`.",
    "analyses/": "Results of `rayfl analyse`.",
}
"""Descriptions by name; folders end in a slash."""
