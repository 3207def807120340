"""Small finished runs for the tests of analyses, and a function that analyses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from rayfl.analysis.analysis import Analysis, analyses
from rayfl.analysis.opened_run import OpenedRun, open_run
from rayfl.analysis.run_folder import RunFolder
from rayfl.analysis.spreading import Launch, carry_out
from rayfl.component import build_component
from tests.callbacks import scene

KEEP = {"name": "periodic_model", "every": 1}
NO_DATA = Path("/nonexistent")


def finished(out: Path, named: Any = (KEEP,), **changes: Any) -> RunFolder:
    """A run of twelve clients, two relay rounds and four rounds of FedAvg, unless changed."""
    return RunFolder.read(scene.run(out, named=named, **changes).directory)


def opened(run: RunFolder) -> OpenedRun:
    return open_run(run.path, NO_DATA)


def build(name: str, **options: Any) -> Any:
    return build_component(analyses, Analysis, {"name": name, **options})


def analysed(name: str, *runs: RunFolder, out: Path | None = None, backend: Any = "inline", **options: Any) -> Any:
    """The rows that an analysis writes."""
    launch = Launch(backend, None, 2 if backend == "ray" else None, NO_DATA, out or runs[0].path)
    path = carry_out(build(name, **options), runs, launch, Console(quiet=True))
    assert path.with_suffix(".png").stat().st_size > 1000
    assert path.with_suffix(".pdf").stat().st_size > 1000
    return pq.read_table(path).to_pylist()
