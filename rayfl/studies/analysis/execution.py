"""Runs an analysis, unit by unit, on any backend; continues where an earlier attempt stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from rayfl import __version__
from rayfl.engine.device import settings_restored, use_threads
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.errors import DataError, RayflError
from rayfl.files import atomic_write
from rayfl.runs.figures.style import SCREEN, drawing
from rayfl.runs.folder import ENVIRONMENT_FILE, METRICS_FILE, SCENARIO_FILE, check_writable
from rayfl.studies.analysis.analysis import Analysis, WorkUnit, save
from rayfl.studies.analysis.opened_run import OpenedRun, open_run
from rayfl.studies.analysis.run_folder import RunFolder

FOLDER = "analyses"
_MADE_FROM = b"rayfl_analysis"


@dataclass(frozen=True)
class AnalysisSettings:
    """How to run an analysis; paths are absolute.

    Attributes:
        backend: `inline`, in this process; or `ray`, on a cluster.
        address: Address of the cluster; see `rayfl.run`.
        hosts: Largest number of worker processes; None for as many as the cluster has room for.
        data_dir: The folder with real data.
        out: The folder in which to create `analyses/`.
        stem: Name of the files there, without suffix; by default that of the analysis.
    """

    backend: Literal["ray", "inline"]
    address: str | None
    hosts: int | None
    data_dir: Path
    out: Path
    stem: str = ""


def run_analysis(analysis: Analysis, runs: Sequence[RunFolder], launch: AnalysisSettings, console: Console) -> Path:
    """Analyses finished runs, and writes a Parquet file and a picture.

    Args:
        analysis: The analysis with its options.
        runs: The runs.
        launch: How to run it.
        console: Where to print cost, progress and findings.

    Returns:
        The Parquet file; the picture is next to it, as PNG and PDF.

    Raises:
        ScenarioError: As for `Analysis.units`.
        DataError: As for `Analysis.units`, or the results contradict the records of the run.
        ResourceError: The folder is not writable, or the cluster lacks resources.
    """
    units = analysis.units(runs)
    digest, result = _digest(analysis, runs), _result(analysis, launch)
    check_writable(result.parent)
    parts = result.with_name(f".{result.stem}-{digest[:12]}")
    if not _is_of(result, digest):
        parts.mkdir(exist_ok=True)
        remaining = [unit for unit in units if not _part(parts, unit).exists()]
        _say(console, f"cost     {analysis.cost(runs, remaining) if remaining else 'nothing left to compute'}")
        if len(remaining) < len(units):
            _say(console, f"done     {len(units) - len(remaining)} of {len(units)} parts, by an earlier attempt")
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(analysis.name, total=len(remaining))
            for done in _computed(analysis, runs, remaining, parts, launch):
                progress.update(bar, completed=done)
        rows = _joined(parts, units)
        with atomic_write(result) as temporary:
            pq.write_table(rows.replace_schema_metadata({_MADE_FROM: digest.encode()}), temporary)
        shutil.rmtree(parts)
    else:
        _say(console, "cost     nothing: this analysis is finished; drawing it again")
    records = pq.read_table(result).to_pylist()
    with drawing(SCREEN):
        pictures = save(analysis.draw(records, runs), result.with_suffix(""))
    for line in analysis.findings(records, runs):
        _say(console, line)
    _say(console, f"records  {result}")
    _say(console, f"picture  {pictures[0]}, {pictures[1].name}")
    return result


def has_finished(analysis: Analysis, runs: Sequence[RunFolder], launch: AnalysisSettings) -> bool:
    """Whether `run_analysis` has nothing left to compute."""
    return _is_of(_result(analysis, launch), _digest(analysis, runs))


def _result(analysis: Analysis, launch: AnalysisSettings) -> Path:
    return launch.out / FOLDER / f"{launch.stem or analysis.name}.parquet"


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _computed(
    analysis: Analysis, runs: Sequence[RunFolder], remaining: Sequence[WorkUnit], parts: Path, launch: AnalysisSettings
) -> Iterator[int]:
    """Computes the remaining units; yields the number of finished ones."""
    paths = [run.path for run in runs]
    if launch.backend == "inline":
        for number, unit in enumerate(remaining, start=1):
            if failure := compute_parts(analysis, paths, [unit], parts, launch.data_dir):
                raise DataError(failure)
            yield number
        return
    if not remaining:
        return
    from rayfl.backends.ray.placement import resources_of
    from rayfl.backends.ray.tasks import RayTask, run_tasks

    number = launch.hosts or len(remaining)
    shares = [list(remaining[first::number]) for first in range(number)]
    resources = resources_of(runs[0].scenario)
    tasks = [RayTask((analysis, paths, share, parts, launch.data_dir), resources) for share in shares if share]
    with closing(run_tasks(compute_parts, tasks, launch.address, parts, launch.data_dir)) as results:
        for result in results:
            if result is not None and isinstance(result.value, Exception):
                raise result.value
            if result is not None and result.value:
                raise DataError(result.value)
            yield sum(_part(parts, unit).exists() for unit in remaining)


def compute_parts(
    analysis: Analysis, paths: Sequence[Path], units: Sequence[WorkUnit], parts: Path, data_dir: Path
) -> str | None:
    """Computes units in this process, and writes a file for each.

    Returns:
        None, or the message of an error.
    """

    def open(number: int) -> OpenedRun:
        return open_run(paths[number], data_dir)

    try:
        for unit in units:
            run = open(unit.run)
            with TORCH_GLOBALS, settings_restored(run.plan.scenario.resources):
                use_threads(run.plan.scenario.numerics.threads)
                rows = analysis.compute(unit, open)
            with atomic_write(_part(parts, unit)) as temporary:
                pq.write_table(pa.Table.from_pylist(rows), temporary)
    except RayflError as error:
        return str(error)
    return None


def _joined(parts: Path, units: Sequence[WorkUnit]) -> pa.Table:
    tables = [pq.read_table(_part(parts, unit)) for unit in units]
    return pa.concat_tables(tables, promote_options="default")  # a column may be null throughout a part


def _part(parts: Path, unit: WorkUnit) -> Path:
    return parts / f"{unit.name}.parquet"


def _is_of(result: Path, digest: str) -> bool:
    """Whether a finished analysis has these runs and options."""
    return result.exists() and (pq.read_schema(result).metadata or {}).get(_MADE_FROM) == digest.encode()


def _digest(analysis: Analysis, runs: Sequence[RunFolder]) -> str:
    """Digest of everything that the rows depend on."""
    files = [
        hashlib.sha256((run.path / name).read_bytes()).hexdigest()
        for run in runs
        for name in (SCENARIO_FILE, ENVIRONMENT_FILE, METRICS_FILE)
    ]
    what = [__version__, analysis.model_dump(mode="json"), [str(run.path) for run in runs], files]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
