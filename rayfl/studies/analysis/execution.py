"""Runs an analysis, unit by unit, on any backend; continues where an earlier attempt stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress

from rayfl import __version__
from rayfl.console import print_line
from rayfl.data.files import data_folder
from rayfl.engine.device import settings_restored, use_threads
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.errors import DataError, RayflError, ResourceError, ScenarioError
from rayfl.files import atomic_write, reading
from rayfl.notebook import console_of
from rayfl.runs.figures.notebook import NotebookFigure
from rayfl.runs.figures.style import SCREEN, drawing
from rayfl.runs.folder import ENVIRONMENT_FILE, METRICS_FILE, SCENARIO_FILE, check_writable
from rayfl.runs.options import RunOptions
from rayfl.studies.analysis.analysis import ANALYSES, Analysis, WorkUnit, save
from rayfl.studies.analysis.opened_run import OpenedRun, open_run
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.figures.groups import Source, folder_of

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


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """The outcome of an analysis.

    Attributes:
        table: Its rows, as the Parquet file has them.
        figure: Its picture.
        findings: Sentences on it.
        path: The Parquet file; the picture is next to it, as PNG and PDF.

    Example:
        >>> import rayfl
        >>> short = {"phases.federated.rounds": 1, "data.source": "generated", "data.clients": 4}
        >>> run = rayfl.run("femnist_fedavg", overrides=short, backend="inline", quiet=True)
        >>> result = rayfl.analyse("heterogeneity", run, backend="inline", quiet=True)
        >>> result.figure.get_suptitle()
        'Heterogeneity of gradients'
    """

    table: pa.Table
    figure: Figure
    findings: tuple[str, ...]
    path: Path

    def _repr_html_(self) -> str:
        texts = "".join(f"<p>{escape(text)}</p>" for text in self.findings)
        return texts + (self.figure._repr_svg_() if isinstance(self.figure, NotebookFigure) else "")


def analyse(
    name: str,
    runs: Source | Sequence[Source],
    /,
    *,
    backend: Literal["ray", "inline"] = "ray",
    address: str | None = None,
    hosts: int | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    console: Console | None = None,
    quiet: bool = False,
    **options: Any,
) -> AnalysisResult:
    """Analyses finished runs: why a start helps, how clients differ, what features are worth.

    Call it again after an interruption to continue; what is finished is only drawn again.

    Args:
        name: Of the analysis: `bounds`, `convex`, `curve`, `gains`, `heterogeneity`, `landscape`, `ntk`, `probe`,
            `variance`, or `package.module:object`.
        runs: The folder of a run, or what `rayfl.run` returned; or several of them.
        backend: `ray`, or `inline`, in this process; results are the same.
        address: Address of a Ray cluster, as for `rayfl.run`.
        hosts: Largest number of worker processes; by default as many as the cluster has room for.
        out: Where to create `analyses/`; by default in the folder of the first run.
        data_dir: The folder with real data, as for `rayfl.run`.
        console: Where to print cost, progress and findings, as for `rayfl.run`.
        quiet: Prints nothing.
        **options: Those of the analysis, such as `rounds=[1, 10]`; docs/how-to/analyse.md lists them.

    Raises:
        ScenarioError: An option is wrong, or the runs do not support the analysis.
        DataError: A run has not finished or lacks files, or its data is missing.
        ResourceError: The folder is not writable, or the cluster lacks resources.

    Example:
        >>> import rayfl
        >>> short = {"phases.federated.rounds": 12, "evaluation.every": 1}
        >>> short |= {"data.source": "generated", "data.clients": 4, "model": {"name": "mlp", "hidden": [8]}}
        >>> run = rayfl.run("femnist_fedavg", overrides=short, backend="inline", quiet=True)
        >>> result = rayfl.analyse("curve", run, window=5, backend="inline", quiet=True)
        >>> result.path.name, result.table.column_names[0]
        ('curve.parquet', 'run')
    """
    sources = [runs] if isinstance(runs, str | Path) or hasattr(runs, "directory") else list(runs)
    if not sources:
        raise ScenarioError("name the folder of a run")
    RunOptions(backend=backend, address=address)
    if hosts is not None and backend == "inline":
        raise ScenarioError("hosts: has no effect without Ray (backend 'inline'); leave it out")
    if hosts is not None and hosts < 1:
        raise ScenarioError(f"hosts: must be at least 1 (got {hosts})")
    if "name" in options:
        raise ScenarioError(f"name: unknown key; '{name}' is the analysis (got '{options['name']}')")
    analysis = ANALYSES.build({"name": name} | options)
    folders = [RunFolder.read(folder_of(source)) for source in sources]
    analysis.check_number(len(folders))
    at = Path(out) if out else folders[0].path
    launch = AnalysisSettings(backend, address, hosts, data_folder(data_dir).absolute(), at.absolute())
    return run_analysis(analysis, folders, launch, console_of(console, quiet))


def run_analysis(
    analysis: Analysis, runs: Sequence[RunFolder], launch: AnalysisSettings, console: Console
) -> AnalysisResult:
    """Analyses finished runs, and writes a Parquet file and a picture.

    Args:
        analysis: The analysis with its options.
        runs: The runs.
        launch: How to run it.
        console: Where to print cost, progress and findings.

    Raises:
        ScenarioError: As for `Analysis.units`.
        DataError: As for `Analysis.units`, or the results contradict the records of the run.
        ResourceError: The folder is not writable, an earlier result there is damaged, or the cluster lacks resources.
    """
    analysis.check_headline(runs)
    units = analysis.units(runs)
    digest, result = _digest(analysis, runs), _result(analysis, launch)
    check_writable(result.parent)
    parts = result.with_name(f".{result.stem}-{digest[:12]}")
    if not _is_of(result, digest):
        if result.exists():
            print_line(
                console, f"note     replaces {result.name}, made with other options or runs; --out DIR keeps both"
            )
        parts.mkdir(exist_ok=True)
        remaining = [unit for unit in units if not _part(parts, unit).exists()]
        print_line(console, f"cost     {analysis.cost(runs, remaining) if remaining else 'nothing left to compute'}")
        if len(remaining) < len(units):
            print_line(console, f"done     {len(units) - len(remaining)} of {len(units)} parts, by an earlier attempt")
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(analysis.name, total=len(remaining))
            for done in _computed(analysis, runs, remaining, parts, launch):
                progress.update(bar, completed=done)
        rows = _joined(parts, units)
        with atomic_write(result) as temporary:
            pq.write_table(rows.replace_schema_metadata({_MADE_FROM: digest.encode()}), temporary)
        shutil.rmtree(parts)
    else:
        print_line(console, "cost     nothing: this analysis is finished; drawing it again")
    with reading(result, "as Parquet", ResourceError):
        table = pq.read_table(result)
    records = table.to_pylist()
    with drawing(SCREEN):
        figure = analysis.draw(records, runs)
        pictures = save(figure, result.with_suffix(""))
    findings = tuple(analysis.findings(records, runs))
    for line in (*findings, f"records  {result}", f"picture  {pictures[0]}, {pictures[1].name}"):
        print_line(console, line)
    return AnalysisResult(table.replace_schema_metadata(None), figure, findings, result)


def has_finished(analysis: Analysis, runs: Sequence[RunFolder], launch: AnalysisSettings) -> bool:
    """Whether `run_analysis` has nothing left to compute."""
    return _is_of(_result(analysis, launch), _digest(analysis, runs))


def _result(analysis: Analysis, launch: AnalysisSettings) -> Path:
    return launch.out / FOLDER / f"{launch.stem or analysis.name}.parquet"


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
    with reading(result, "as Parquet", ResourceError):
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
