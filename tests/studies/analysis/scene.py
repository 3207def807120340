"""Small finished runs for the tests of analyses, and a function that analyses them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rayfl.studies.analysis.analysis import ANALYSES, Analysis
from rayfl.studies.analysis.execution import AnalysisSettings, run_analysis
from rayfl.studies.analysis.opened_run import OpenedRun, open_run
from rayfl.studies.analysis.run_folder import RunFolder
from tests.callbacks import scene

KEEP = {"name": "periodic_model", "every": 1}
NO_DATA = Path("/nonexistent")


def finished(out: Path, named: Any = (KEEP,), **changes: Any) -> RunFolder:
    """A run of twelve clients, two relay rounds and four rounds of FedAvg, unless changed."""
    return RunFolder.read(scene.run(out, named=named, **changes).directory)


def copied(run: RunFolder, to: Path) -> RunFolder:
    """A copy that a test may change."""
    shutil.copytree(run.path, to / "run")
    return RunFolder.read(to / "run")


def opened(run: RunFolder) -> OpenedRun:
    return open_run(run.path, NO_DATA)


def build(name: str, **options: Any) -> Any:
    analysis: Analysis = ANALYSES.build({"name": name, **options})
    return analysis


def analysed(
    name: str, *runs: RunFolder, out: Path | None = None, backend: Any = "inline", saved: bool = False, **options: Any
) -> Any:
    """The rows that an analysis writes; it draws them, but saves the picture, which takes longest, only if asked to."""
    launch = AnalysisSettings(backend, None, 2 if backend == "ray" else None, NO_DATA, out or runs[0].path)
    with pytest.MonkeyPatch.context() as patch:
        if not saved:
            patch.setattr("rayfl.studies.analysis.execution.save", lambda figure, path: [path, path])
        path = run_analysis(build(name, **options), runs, launch, Console(quiet=True)).path
    for suffix in (".png", ".pdf") if saved else ():
        assert path.with_suffix(suffix).stat().st_size > 1000
    return pq.read_table(path).to_pylist()
