"""`rayfl.run`: a scenario, from its name to its records."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from rayfl.algorithms.building import with_algorithm_defaults
from rayfl.config.loading import Overrides, load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.folders import cache_folder, data_folder
from rayfl.data.store import build_store
from rayfl.engine.cohort import check_cohort
from rayfl.engine.evaluation import cut
from rayfl.engine.needs import check_needs
from rayfl.engine.network import build_checked
from rayfl.engine.session import Job, Session
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.report.curves import PhaseSpan, draw_curves
from rayfl.report.environment import describe_environment
from rayfl.report.progress import Progress
from rayfl.report.records import Records, check_writable
from rayfl.report.summary import Summary

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

Backend = Literal["ray", "inline"]


@dataclass(frozen=True)
class Result:
    """What a run gave.

    metrics: a row per evaluated round (columns: `rayfl.report.records.METRICS`).
    state_dict: the final model, in PyTorch's names and layout, on the CPU.
    directory: the run's records.
    """

    scenario: Scenario
    metrics: pa.Table
    state_dict: dict[str, torch.Tensor]
    directory: Path


def run(
    scenario: str | Path | dict[str, Any] | Scenario,
    *,
    overrides: Overrides = (),
    quick: bool = False,
    backend: Backend = "ray",
    address: str | None = None,
    out: str | Path = "runs",
    folder: str | Path | None = None,
    data_dir: str | Path | None = None,
    console: Console | None = None,
) -> Result:
    """Runs a scenario to its end.

    scenario: a name, a path to a TOML file, a table, or a Scenario.
    overrides: `{"phases.0.rounds": 10}` or `["phases.0.rounds=10"]`; quick: apply the [quick] table before them.
    backend: `ray`, or `inline`: in this process, where a debugger can follow; the same bits.
    address: of a Ray cluster (`auto`: the one this machine belongs to); by default the one that is connected, else
        RAY_ADDRESS's, else one that is started here for the run.
    out: where the run's folder goes, `<out>/<name>-<time>`; or instead folder: the run's own.
    data_dir: real data, by default RAYFL_DATA or ~/.cache/rayfl/data.
    console: where progress goes; `Console(quiet=True)` for silence.

    Raises:
        ScenarioError, DataError, ResourceError: before anything starts. ClientError: a visit failed.
    """
    console = console or Console()
    resolved = load_scenario(scenario, overrides, quick)
    if backend not in ("ray", "inline"):
        raise ScenarioError(f"backend: '{backend}' is neither 'ray' nor 'inline'")
    # absolute paths, since a connection to Ray may change the working directory
    out, folder = Path(out).absolute(), Path(folder).absolute() if folder else None
    check_writable(folder or out)
    job, model = prepare(resolved, Path(data_dir).absolute() if data_dir else data_folder().absolute())
    with ExitStack() as stack:
        _announce(console, job, model)
        session = stack.enter_context(_session(job, backend, address))
        records = stack.enter_context(
            Records.within(folder) if folder else Records.create(out, resolved.name, datetime.now())
        )
        _announce_hosts(console, session, backend, records.folder)
        records.write_scenario(job.scenario.to_toml())
        records.write_environment(describe_environment(job, backend, session.hosts))
        summary = Summary()
        with Progress([(phase.name, phase.rounds) for phase in job.scenario.phases], console) as progress:
            for event in session.events():
                records.add(event)
                summary.add(event)
                progress.add(event)
        model.load(_as_tensor(session))
        state = model.state_dict()
        records.write_model(state)
        metrics = records.metrics_table()
    curves = records.folder / "curves.png"
    draw_curves(metrics, _spans(job.scenario), _title(job.scenario), job.store.provenance, curves)
    summary.show(console, records.folder)
    return Result(job.scenario, metrics, state, records.folder)


def prepare(scenario: Scenario, data_dir: Path) -> tuple[Job, FlatModel]:
    """Loads the data, builds the network, and checks everything that can be checked before a host starts."""
    scenario = with_algorithm_defaults(scenario)
    store = build_store(scenario.data, scenario.seed, data_dir, cache_folder())
    for phase in scenario.phases:
        check_cohort(phase, f"phases.{phase.name}", store.num_clients)
    cut(scenario.evaluation, store)
    model = build_checked(scenario, store)
    check_needs(scenario, model.module, store)
    return Job(scenario, store, model.vector.numpy().copy(), len(model.params)), model


def _session(job: Job, backend: Backend, address: str | None) -> AbstractContextManager[Session]:
    # each backend is imported where it is chosen: `inline` works where Ray is not installed
    if backend == "inline":
        from rayfl.engine.inline import inline_session

        return inline_session(job)
    from rayfl.cluster.session import ray_session

    return ray_session(job, address)


def _as_tensor(session: Session) -> torch.Tensor:
    import torch

    return torch.from_numpy(session.model())


def _spans(scenario: Scenario) -> list[PhaseSpan]:
    ends = accumulate(phase.rounds for phase in scenario.phases)
    return [
        PhaseSpan(phase.name, phase.schedule, end - phase.rounds + 1, end)
        for phase, end in zip(scenario.phases, ends, strict=True)
    ]


def _title(scenario: Scenario) -> str:
    return scenario.title or scenario.name


def _announce(console: Console, job: Job, model: FlatModel) -> None:
    """What is about to run, and on which data: generated data is said in red."""
    store, scenario = job.store, job.scenario
    lines = [
        f"{_title(scenario)} (scenario {scenario.name}, seed {scenario.seed})",
        f"data     {store.provenance.source}: {store.provenance.description}",
        *(f"         {path}, sha256 {digest[:16]}…" for path, digest in store.provenance.files),
        f"         {store.summary()}",
        f"model    {scenario.model.name}, {model.num_params:,} parameters",
        *(f"phase    {p.name}: {p.rounds} rounds, {p.schedule}, {p.algorithm.name}" for p in scenario.phases),
    ]
    styles = {0: "bold", 1: "bold red" if store.provenance.source == "generated" else ""}
    for number, line in enumerate(lines):
        console.print(line, style=styles.get(number, ""), highlight=False, markup=False, soft_wrap=True)


def _announce_hosts(console: Console, session: Session, backend: Backend, folder: Path) -> None:
    lines = [f"host {host['host']}   {host['device']} on {host['node']} (backend {backend})" for host in session.hosts]
    for line in [*lines, f"records  {folder}"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
