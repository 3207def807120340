"""The folder of a run, before there is anything in it; loads neither PyTorch nor pyarrow."""

from __future__ import annotations

import itertools
import tempfile
from datetime import datetime
from pathlib import Path

from rayfl.errors import ResourceError

METRICS_FILE = "metrics.jsonl"
SCENARIO_FILE = "scenario.toml"

CLIENT_PARTS = ".clients.parquet.*.*"
"""Of clients.parquet, which is put together at the end."""

CHECKPOINTS = "checkpoints"
"""The folder of manifests."""

STATES = "states"
"""In it, the folder of what they name."""


def check_writable(out: Path) -> None:
    """Creates the folder `out`, and a file in it for a moment.

    Raises:
        ResourceError: Nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ResourceError(
            f"cannot write to the output folder '{out}': {error.strerror}; name another one with --out"
        ) from error


def check_holds_no_run(folder: Path) -> None:
    """Creates the folder, and checks that records can be kept in it.

    Raises:
        ResourceError: Nothing can be written there, or a run's records are there already.
    """
    check_writable(folder)
    if (folder / METRICS_FILE).exists():
        raise ResourceError(f"'{folder}' holds a run's records already: remove them, or name another folder")


def scenario_of(folder: Path) -> Path:
    """The file with the resolved scenario of the run in a folder.

    Raises:
        ResourceError: No run has begun there.
    """
    path = folder / SCENARIO_FILE
    if not path.is_file():
        raise no_run_in(folder)
    return path


def no_run_in(place: object) -> ResourceError:
    """The error for a place that holds no run."""
    return ResourceError(f"'{place}' holds no run that could be resumed: it has no {SCENARIO_FILE}")


def new_folder(out: Path, name: str, now: datetime) -> Path:
    """Makes a new folder `<out>/<name>-<time>`; a second one of the same second ends in -2, and so on.

    Raises:
        ResourceError: Nothing can be written to `out`.
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
