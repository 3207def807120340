"""Runs a scenario with given settings and returns its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rayfl.backends.ray.tune import in_trial
from rayfl.callbacks.callback import Callback
from rayfl.callbacks.selection import build_callbacks, check_decisions, check_ranking_metrics, checked
from rayfl.config.execution import HostRange
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import BackendSession
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ResourceError, ScenarioError
from rayfl.interruption import StopRequest
from rayfl.models.flat import FlatModel
from rayfl.runs.announcement import announce, say
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.centralised import centralised
from rayfl.runs.changes import check_something_left
from rayfl.runs.checkpoints import Checkpoints
from rayfl.runs.ending import draw
from rayfl.runs.initial_weights import find_source, first_model, start_from
from rayfl.runs.old_records import OldRecords
from rayfl.runs.options import RunOptions
from rayfl.runs.preparation import Prepared
from rayfl.runs.privacy_record import new_ledger
from rayfl.runs.records import Records
from rayfl.runs.result import Result
from rayfl.runs.resume import How, reopen
from rayfl.runs.run import Run
from rayfl.runs.run_lock import run_lock
from rayfl.runs.status import Status
from rayfl.runs.working_folder import Mirror
from rayfl.steps import step

if TYPE_CHECKING:
    from rayfl.backends.ray.kept_cluster import KeptCluster


TURN_TICK_S = 1.0
"""How often a run that waits for its turn asks whether it has come."""


@dataclass(frozen=True)
class Launch:
    """A run to start: its options, and what the program that starts it provides.

    Attributes:
        options: How to run it, with absolute paths, data folder and starts included; a run at a URI has the local
            folder here where it works.
        for_itself: Whether this is the requested run, rather than one that another run starts from.
        ahead: Returns how many runs that wait for the cluster come first; a run waits for its turn with them.
        request: A request to stop the run. It ends a run that waits for room on a busy cluster (without it the run
            fails then) or for a scenario that runs first; afterwards the run ends after a round.
        kept: The Ray connection and actors that consecutive runs share; None for a single run.
        mirror: Publishes the run's folder if the run is at a URI.
    """

    options: RunOptions
    for_itself: bool = True
    ahead: Callable[[], int] | None = None
    request: StopRequest | None = None
    kept: KeptCluster | None = None
    mirror: Mirror | None = None

    @property
    def folder(self) -> Path | None:
        """The run's folder; None if it is to be created."""
        return Path(self.options.run_folder) if self.options.run_folder else None

    @property
    def data_dir(self) -> Path:
        """The data folder."""
        assert self.options.data_dir is not None
        return Path(self.options.data_dir)

    @property
    def starts(self) -> Path:
        """The folder for models of scenarios that others start from."""
        assert self.options.starts is not None
        return Path(self.options.starts)

    @property
    def where(self) -> str:
        """The place of the run for messages, if it is known."""
        return str(self.mirror.remote if self.mirror else self.folder or "")


def launch_run(scenario: Scenario, launch: Launch, console: Console, prepared: Prepared | None = None) -> Result:
    """Runs a scenario as `rayfl.run` does.

    Args:
        scenario: The scenario, as loaded from files and overrides.
        launch: How to run it.
        console: Prints progress.
        prepared: What scenarios that belong together share; afterwards it keeps the data of the requested run.
    """
    if launch.options.backend == "inline" and scenario.resources.dashboard:
        raise ScenarioError("resources.dashboard: has no effect without Ray (backend 'inline'); leave it out")
    with ExitStack() as held:
        check_held = held.enter_context(run_lock(launch.folder, launch.where)) if launch.folder else None
        return _launch_held(scenario, launch, console, held, check_held, prepared or Prepared(launch.data_dir))


def _launch_held(
    scenario: Scenario,
    launch: Launch,
    console: Console,
    held: ExitStack,
    check_held: Callable[[], None] | None,
    prepared: Prepared,
) -> Result:
    """Runs a scenario whose folder, if it was given, is locked by `held`; a new one will be."""
    if launch.folder:
        old = OldRecords(launch.folder)
        if Checkpoints(launch.folder, 1).any():
            old.drop()
        else:
            old.put_back()  # if an attempt to start over was killed
        if launch.options.resume:
            check_something_left(launch.folder, scenario, launch.options.callbacks, launch.where)
    run_plan, model = prepared.plan(scenario, partial(step, console))
    if launch.mirror and not run_plan.scenario.repeatable:
        raise ScenarioError(
            f"'{launch.mirror.remote}': a run with `secure` noise charges each update on disk before its release; name "
            "a folder instead of a URI"
        )
    if launch.options.centralise:
        keep = launch.options.centralise == "keep_momentum"
        counterpart = centralised(run_plan.scenario, run_plan.result.population.sizes, keep)
        run_plan, model = prepared.plan(counterpart, partial(step, console))
    named, passed = build_callbacks(run_plan.scenario), checked(launch.options.callbacks, run_plan.scenario)
    if all(type(callback).__module__.startswith("rayfl.") for callback in passed):  # others may log any column
        check_ranking_metrics(named, run_plan.scenario, run_plan.result.store, "callbacks.{}")
        check_ranking_metrics(passed, run_plan.scenario, run_plan.result.store, "callbacks[{}]")
    for index, callback in enumerate(named):
        check_decisions(callback, run_plan, f"callbacks.{index}")
    for index, callback in enumerate(passed):
        check_decisions(callback, run_plan, f"callbacks[{index}]")
    if run_plan.scenario.start:
        run_plan = _started(run_plan, model, launch, console, prepared)
    if launch.for_itself:
        prepared.keep_data_of(run_plan.scenario)
    del prepared  # frees what only the start needed
    callbacks = [*named, *passed]
    if launch.for_itself:
        callbacks += _of_trial(run_plan.scenario)
    run_plan = replace(run_plan, settles=any(callback.settles for callback in callbacks))

    runs: list[Run] = []

    def has_committed() -> bool:
        return any(run.done for run in runs)

    def check() -> None:
        if launch.request and not launch.for_itself:
            launch.request.check()
        if launch.folder and has_committed():
            old.drop()

    with ExitStack() as stack:
        announce(console, run_plan, model)
        if launch.folder:
            stack.enter_context(old.kept_until(has_committed, partial(say, console, style="yellow")))
        resumed = launch.folder if launch.options.resume else None
        place = launch.options.place or (_recorded_place(resumed) if resumed else None)
        reopened = reopen(resumed, run_plan, console, launch.mirror) if resumed else None
        if reopened:
            records = stack.enter_context(reopened.records)
        elif launch.folder:
            records = stack.enter_context(Records.within(launch.folder))
        else:
            records = stack.enter_context(
                Records.create(Path(launch.options.out), run_plan.scenario.name, datetime.now())
            )
            check_held = held.enter_context(run_lock(records.folder))
        if launch.mirror:
            records.where = str(launch.mirror.remote)
        checkpoints = Checkpoints(records.folder, run_plan.scenario.checkpoint.keep, launch.mirror)
        state, ledger = (reopened.state, reopened.ledger) if reopened else (None, new_ledger(run_plan, records.folder))
        assert check_held is not None
        run = Run(run_plan, model, records, callbacks, console, state, checkpoints, ledger, check_held)
        stack.enter_context(run)
        runs.append(run)
        opened = _session(run_plan, launch, records.folder, run.status, console)
        run.connect(opened, launch.options.backend, reopened.restore if reopened else None, place)
        if launch.request and launch.for_itself:
            launch.request.pass_to(run.stop)
        for _ in run.follow(check):
            pass
        metrics, state = run.finish()
    if stopped := run.stopped:
        say(console, f"stopped after round {stopped.round} by {stopped.callback}: {stopped.reason}")
    if launch.options.curves:
        draw(records.folder, console)
    run.summarize()
    return Result(
        run_plan.scenario, metrics, state, records.folder, str(launch.mirror.remote) if launch.mirror else None
    )


def _recorded_place(folder: Path) -> GridPlace | None:
    """The recorded place of a run that is resumed; None if the file is damaged, which `reopen` says."""
    try:
        return RunArchive(folder).place
    except ResourceError:
        return None


def _started(run_plan: RunPlan, model: FlatModel, launch: Launch, console: Console, prepared: Prepared) -> RunPlan:
    """The plan with the weights that its scenario starts from."""
    start = run_plan.scenario.start
    assert start is not None
    first = first_model(run_plan, model)

    def run_first(before: Scenario, run_folder: Path, how: How) -> None:
        does = "runs first" if how == "begin" else "resumes first"
        say(console, f"start    scenario {before.name} {does}", "bold")
        # its overrides come from this scenario
        folders = dict.fromkeys((*before.module_folders, *run_plan.scenario.module_folders))
        before = before.model_copy(update={"module_folders": tuple(folders)})
        where = {"begin": None, "resume": None, how: run_folder}
        options = replace(
            launch.options,
            folder=where["begin"],
            resume=where["resume"],
            callbacks=(),
            centralise=False,
            more=0,
            place=None,
        )
        launch_run(before, replace(launch, options=options, for_itself=False, mirror=None), console, prepared)

    def warn(text: str) -> None:
        say(console, f"start    {text}", "yellow")

    source = find_source(start, first, launch.starts, prepared, run_first, warn)
    run_plan, taken = start_from(run_plan, first, source)
    say(console, f"start    {source.where}: {taken.summary()}")
    return run_plan


def _session(
    run_plan: RunPlan, launch: Launch, folder: Path, status: Status, console: Console
) -> AbstractContextManager[BackendSession]:
    # imported only if chosen, so that `inline` works without Ray
    if launch.options.backend == "inline":
        from rayfl.backends.inline import inline_session

        return inline_session(run_plan)
    with step(console, "starting", "Ray"):
        if launch.kept:
            launch.kept.wait_for_ray()
            launch.kept.connect(launch.options.address, run_plan.scenario.resources.dashboard)
        from rayfl.backends.ray.log import NAME, RayLog
        from rayfl.backends.ray.session import ray_session

    told: list[str] = []

    def wait(why: str) -> None:
        if not told:
            say(console, f"waiting  {why}", "yellow")
            told.append(why)
        status.waiting(why)
        if launch.request:
            launch.request.check()

    def wait_for_turn(why: str | None) -> None:
        if why is not None:
            wait(why)
        while launch.ahead is not None and (runs := launch.ahead()):
            other = "1 other run that waits" if runs == 1 else f"{runs} other runs that wait"
            wait(f"{other} for the cluster come{'s' * (runs == 1)} first")
            time.sleep(TURN_TICK_S)  # other runs tell when they are asked

    wait_for_turn(None)
    waiting = wait_for_turn if launch.request or isinstance(run_plan.scenario.resources.hosts, HostRange) else None
    return ray_session(run_plan, launch.options.address, RayLog(folder / NAME), waiting, launch.kept)


def _of_trial(scenario: Scenario) -> list[Callback]:
    """The callback that reports to Ray Tune, if this program is one of its trials."""
    if not in_trial() or any(chosen.name == "ray_tune" for chosen in scenario.callbacks):
        return []
    from rayfl.callbacks.trackers import RayTune

    return [RayTune(name="ray_tune")]
