"""`rayfl.run`: runs a scenario and writes its records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.text import Text

from rayfl.callbacks.building import build_callbacks, checked
from rayfl.callbacks.callback import Callback, Given
from rayfl.callbacks.follower import Follower
from rayfl.centralised import centralised
from rayfl.config.loading import Overrides, load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.folders import cache_folder, data_folder
from rayfl.engine.job import Job, Session
from rayfl.errors import ScenarioError
from rayfl.interruption import interruptible, is_interrupt
from rayfl.models.flat import FlatModel
from rayfl.planning.events import EventConsumer, RoundSettled
from rayfl.preparation import prepare
from rayfl.report.announcement import announce, announce_hosts
from rayfl.report.ending import committed_model, draw, end_callbacks, end_early
from rayfl.report.environment import describe_environment
from rayfl.report.privacy import PrivacyRecords
from rayfl.report.progress import Progress
from rayfl.report.records import Records, check_writable
from rayfl.report.status import Status, Stop
from rayfl.report.summary import Summary
from rayfl.start.initial_weights import find_source, start_from

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

Backend = Literal["ray", "inline"]


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        scenario: The scenario as it ran, with every default written out.
        metrics: One row per evaluated round: the columns of `rayfl.report.columns.METRICS`, then reported scalars.
        state_dict: The final model, in PyTorch's names and layout, on the CPU.
        directory: The folder with the run's records.
    """

    scenario: Scenario
    metrics: pa.Table
    state_dict: dict[str, torch.Tensor]
    directory: Path


@dataclass(frozen=True)
class Launch:
    """How a scenario is run; the paths are absolute.

    Attributes:
        data_dir: Where the real data is.
        out: Where the run's folder is created.
        folder: The run's folder, if it is not to be created in `out`.
        backend: `ray` or `inline`.
        address: Of a Ray cluster; see `run`.
        callbacks: Called after those that the scenario names.
        starts: Where the models of scenarios that others start from are kept.
        centralise: Whether the scenario's centralised counterpart is run instead.
        for_itself: Whether the run is what was asked for, and not one that another starts from.
        check_asked: Raises StopRequested if the run has been asked to stop. Called about every second while a busy
            cluster has no room for the hosts (without it the run fails if there is none), and after each event of a
            scenario that is run first.
    """

    data_dir: Path
    out: Path
    folder: Path | None
    backend: Backend
    address: str | None
    callbacks: Given
    starts: Path
    centralise: bool = False
    for_itself: bool = True
    check_asked: Callable[[], None] | None = None


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
    callbacks: Given = (),
    starts: str | Path | None = None,
    centralise: bool = False,
    console: Console | None = None,
) -> Result:
    """Runs a scenario.

    A run that fails or is interrupted (Ctrl-C, SIGTERM) leaves its metrics so far and the model of its last committed
    round; `status.json` in its folder says what happened and which round the model is from.

    Args:
        scenario: A name, a path to a TOML file, a table, or a Scenario.
        overrides: `{"phases.0.rounds": 10}` or `["phases.0.rounds=10"]`.
        quick: Applies the scenario's [quick] table before the overrides.
        backend: `ray`, or `inline`: everything in this process, for debugging. Both give the same bits. Runs
            in several threads of one process take turns, except on a cluster that the program itself has connected to.
        address: Address of a Ray cluster (`auto`: the one this machine belongs to). By default the cluster that this
            program is connected to, else that of RAY_ADDRESS, else one started on this machine for the run.
        out: Where the run's folder is created, as `<out>/<name>-<time>`.
        folder: Use this folder for the run instead of creating one in `out`.
        data_dir: Where the real data is; by default RAYFL_DATA or ~/.cache/rayfl/data.
        callbacks: Objects or classes derived from `rayfl.Callback`, called after those that the scenario names.
        starts: Where the models of scenarios that others start from are kept; by default `starts` in $RAYFL_CACHE or
            ~/.cache/rayfl.
        centralise: Run the scenario's centralised counterpart instead; see `rayfl.centralised`.
        console: Where progress is printed; `Console(quiet=True)` prints nothing.

    Returns:
        The final model, the metrics, and the folder with the records.

    Raises:
        ScenarioError: The scenario is wrong; found before anything starts.
        DataError: The data is missing or wrong; found before anything starts.
        ResourceError: A resource that the run needs is missing or was lost.
        ClientError: A client update failed.

    Example:
        >>> rayfl.run("femnist_cyclic", quick=True, overrides={"seed": 1}).metrics["test_accuracy"][-1]
    """
    if backend not in ("ray", "inline"):
        raise ScenarioError(f"backend: '{backend}' is neither 'ray' nor 'inline'")
    # absolute paths, since a connection to Ray may change the working directory
    out, folder = Path(out).absolute(), Path(folder).absolute() if folder else None
    check_writable(folder or out)
    launch = Launch(
        data_folder(data_dir).absolute(),
        out,
        folder,
        backend,
        address,
        tuple(callbacks) if isinstance(callbacks, list | tuple) else callbacks,
        Path(starts).absolute() if starts else cache_folder() / "starts",
        centralise,
    )
    return carry_out(load_scenario(scenario, overrides, quick), launch, console or Console())


def carry_out(scenario: Scenario, launch: Launch, console: Console) -> Result:
    """Runs a scenario as `run` does.

    Args:
        scenario: As loaded from files and overrides.
        launch: How, and with what.
        console: Where progress is printed.
    """
    if launch.backend == "inline" and scenario.resources.dashboard:
        raise ScenarioError("resources.dashboard: has no effect without Ray (backend 'inline'); leave it out")
    job, model = prepare(scenario, launch.data_dir)
    if launch.centralise:
        job, model = prepare(centralised(job.scenario, job.result.population.sizes), launch.data_dir)
    if job.scenario.start:
        job = _started(job, model, launch, console)
    following = [*build_callbacks(job.scenario), *checked(launch.callbacks, job.scenario)]
    if launch.for_itself:
        following += _of_trial(job.scenario)
    job = replace(job, settles=bool(following))
    summary = Summary(job.headline)

    def check() -> None:
        interrupts.check()
        if launch.check_asked and not launch.for_itself:
            launch.check_asked()

    with ExitStack() as stack:
        announce(console, job, model)
        records = stack.enter_context(
            Records.within(launch.folder)
            if launch.folder
            else Records.create(launch.out, job.scenario.name, datetime.now())
        )
        interrupts = stack.enter_context(interruptible())
        status = Status(records.folder, sum(phase.rounds for phase in job.scenario.phases))
        privacy = PrivacyRecords(job, records.folder)
        session: Session | None = None
        follower = Follower(
            following, job.scenario, job.headline, records.folder, console, lambda: committed_model(session, model)[1]
        )
        try:
            status.running()
            session = stack.enter_context(_session(job, launch, records.folder, status))
            status.running()
            announce_hosts(console, session, launch.backend, records.folder)
            records.write_scenario(job.scenario.to_toml())
            records.write_environment(describe_environment(job, launch.backend, session.hosts))
            follower.start()
            phases = [(phase.name, phase.rounds) for phase in job.scenario.phases]
            with Progress(phases, console, job.headline) as progress:
                consumers: list[EventConsumer] = [status, records, summary, progress]
                stopped = _follow(session, follower, status, consumers, check, privacy)
            _, state = committed_model(session, model)
            records.write_model(state)
            privacy.finish(records)
            records.close()
            metrics = records.metrics_table()
            status.finished()
        except BaseException as error:
            end_early(interrupts.cause_of(error), session, model, records, status, console, privacy)
            end_callbacks(follower, "interrupted" if is_interrupt(error) else "failed", console)
            raise
        end_callbacks(follower, "finished", console)
    if stopped:
        said = f"stopped after round {stopped.round} by {stopped.callback}: {stopped.reason}"
        console.print(Text(said), soft_wrap=True)
    draw(metrics, job, records.folder / "curves.png", console)
    summary.show(console, records.folder, privacy.summary())
    return Result(job.scenario, metrics, state, records.folder)


def _started(job: Job, model: FlatModel, launch: Launch, console: Console) -> Job:
    """The same job with the weights that its scenario starts from."""
    start = job.scenario.start
    assert start is not None

    def run_first(first: Scenario, kept: Path) -> None:
        console.print(Text(f"start    scenario {first.name} is run first", style="bold"), soft_wrap=True)
        folders = dict.fromkeys((*first.module_folders, *job.scenario.module_folders))  # its overrides are from ours
        first = first.model_copy(update={"module_folders": tuple(folders)})
        carry_out(first, replace(launch, folder=kept, callbacks=(), centralise=False, for_itself=False), console)

    source = find_source(start, model, launch.starts, lambda first: prepare(first, launch.data_dir), run_first)
    job, taken = start_from(job, model, source)
    console.print(Text(f"start    {source.where}: {taken.summary()}"), soft_wrap=True)
    return job


def _session(job: Job, launch: Launch, folder: Path, status: Status) -> AbstractContextManager[Session]:
    # imported only when chosen, so that `inline` works without Ray
    if launch.backend == "inline":
        from rayfl.engine.inline import inline_session

        return inline_session(job)
    from rayfl.cluster.ray_log import NAME, RayLog
    from rayfl.cluster.ray_session import ray_session

    def wait(why: str) -> None:
        assert launch.check_asked is not None
        status.waiting(why)
        launch.check_asked()

    return ray_session(job, launch.address, RayLog(folder / NAME), wait if launch.check_asked else None)


def _follow(
    session: Session,
    follower: Follower,
    status: Status,
    consumers: Sequence[EventConsumer],
    check: Callable[[], None],
    privacy: PrivacyRecords,
) -> Stop | None:
    """Runs the scenario and passes every event to the callbacks, then to every consumer in the order of the list.

    Before each of them `check` may raise what ends the run; evaluations get the epsilon of their round first.

    Returns:
        Why it ended before its last round, if it did.
    """
    stopped = None
    for event in session.events():
        check()
        event = follower.add(privacy.add(event))
        for consumer in consumers:
            consumer.add(event)
        if isinstance(event, RoundSettled) and (stop := follower.stop) and stop.round < status.rounds:
            stopped = stop
            status.stop(stop)
            session.stop()
    return stopped


def _of_trial(scenario: Scenario) -> list[Callback]:
    """What reports to the trial of Ray Tune that this program is, if it is one."""
    if "ray.tune" not in sys.modules or any(chosen.name == "ray_tune" for chosen in scenario.callbacks):
        return []
    from rayfl.cluster.ray_tune import RayTune, in_trial

    return [RayTune(name="ray_tune")] if in_trial() else []
