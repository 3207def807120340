"""`rayfl.run` and `rayfl.Session`: run scenarios; the runs of a session share Ray and their workers.

Both ask Ray to start before they load PyTorch, which they do only when a run needs it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rayfl.config.loader import Overrides, load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.files import cache_folder, data_folder
from rayfl.engine.memory import collection_paused
from rayfl.errors import ScenarioError
from rayfl.interruption import time_limit
from rayfl.notebook import console_of, ending_block, shown_as
from rayfl.remote_folder import RemoteFolder, located
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import check_writable
from rayfl.runs.options import OUT, Backend, RunOptions
from rayfl.steps import step

if TYPE_CHECKING:
    from rayfl.backends.ray.kept_cluster import KeptCluster
    from rayfl.callbacks.callback import Given
    from rayfl.runs.centralised import Centralise
    from rayfl.runs.preparation import Prepared
    from rayfl.runs.result import Result
    from rayfl.runs.working_folder import Mirror

ScenarioLike = str | Path | dict[str, Any] | Scenario
"""A name, the path of a TOML file, a table, or a `Scenario`."""


class Session:
    """Runs scenarios one after another and keeps Ray and the worker processes between runs; a context manager.

    The next run reuses the workers if it has the same number of them, the same [resources] and [numerics], and the same
    user code. Otherwise they are replaced, as they are after a run that failed or was stopped early. Results have the
    same bits as those of `rayfl.run`. Use a session from one thread.

    Args:
        backend: As for `rayfl.run`.
        address: As for `rayfl.run`.
        out: As for `rayfl.run`.
        data_dir: As for `rayfl.run`.
        starts: As for `rayfl.run`.
        console: As for `rayfl.run`.
        quiet: As for `rayfl.run`.

    Raises:
        ScenarioError: See `RunOptions`.

    Example:
        >>> import rayfl
        >>> short = {"data.source": "generated", "data.clients": 4, "phases.federated.rounds": 1}
        >>> with rayfl.Session(backend="inline", quiet=True) as session:
        ...     for lr in (0.1, 0.03):
        ...         run = session.run("femnist_fedavg", overrides={**short, "phases.federated.local.lr": lr})
        ...         print(run.scenario.phases[0].local.lr, len(run.metrics))
        0.1 1
        0.03 1
    """

    def __init__(
        self,
        *,
        backend: Backend = "ray",
        address: str | None = None,
        out: str | Path = OUT,
        data_dir: str | Path | None = None,
        starts: str | Path | None = None,
        console: Console | None = None,
        quiet: bool = False,
    ) -> None:
        options = RunOptions(backend=backend, address=address, out=out, data_dir=data_dir, starts=starts)
        self._options, self._console = options.anchored(), console_of(console, quiet)
        self._stack = ExitStack()
        self._kept: KeptCluster | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept = None
        self._stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Ends the workers, and the connection to Ray if the session made it; a later run starts them again."""
        self.__exit__(None, None, None)

    def run(
        self,
        scenario: str | Path | dict[str, Any] | Scenario | None = None,
        *,
        overrides: Overrides = (),
        quick: bool = False,
        folder: str | Path | None = None,
        callbacks: Given = (),
        centralise: Centralise = False,
        resume: str | Path | None = None,
        more: int = 0,
        minutes: float | None = None,
        curves: bool = True,
    ) -> Result:
        """Runs a scenario, with the arguments, the result and the errors of `rayfl.run`."""
        options = replace(
            self._options,
            folder=folder,
            callbacks=callbacks,
            centralise=centralise,
            resume=resume,
            more=more,
            minutes=minutes,
            curves=curves,
        )
        return self._run(scenario, overrides, quick, options)

    def _run(
        self,
        scenario: ScenarioLike | None,
        overrides: Overrides,
        quick: bool,
        options: RunOptions,
        prepared: Prepared | None = None,
    ) -> Result:
        if options.more and scenario is not None:
            raise ScenarioError("more: adds rounds to the run's own scenario; leave out one of them")
        if quick and scenario is None:
            raise ScenarioError("quick: has no effect on the own scenario of a run that is resumed; leave it out")
        with time_limit(options.minutes), ending_block(self._console):
            result = self._run_at(
                located(options.run_folder or options.out), scenario, overrides, quick, options, prepared
            )
        return shown_as(self._console, result)

    def _run_at(
        self,
        place: Path | RemoteFolder,
        scenario: ScenarioLike | None,
        overrides: Overrides,
        quick: bool,
        options: RunOptions,
        prepared: Prepared | None,
    ) -> Result:
        if not isinstance(place, RemoteFolder):
            begun = RunArchive(place).scenario_to_resume() if options.resume else None
            check_writable(place, *(["make it writable"] if options.resume else []))
            loaded = _loaded(scenario, overrides, quick, begun, options)
            return self._launch(loaded, options.within(place) if options.run_folder else options, prepared=prepared)
        from rayfl.runs.working_folder import WorkingFolder, check_holds_no_run, new_place

        with WorkingFolder(self._console) as working:
            place.check_writable()
            if options.resume:
                working.download(place)
            elif options.folder:
                check_holds_no_run(place)
            begun = RunArchive(working.path, str(place)).scenario_to_resume() if options.resume else None
            loaded = _loaded(scenario, overrides, quick, begun, options)
            if not options.run_folder:
                place = new_place(place, loaded.name, bool(options.centralise))
            mirror = working.publish_at(place)
            result = self._launch(loaded, options.within(working.path), mirror, prepared)
            working.lasts_as_long_as(result)
            return result

    def _launch(
        self, loaded: Scenario, options: RunOptions, mirror: Mirror | None = None, prepared: Prepared | None = None
    ) -> Result:
        cluster = self._cluster()
        with collection_paused(), step(self._console, "loading", "PyTorch and Ray" if cluster else "PyTorch"):
            if cluster and loaded.start is None:  # a start that must run first may wait for other programs
                cluster.connect_early(options.address, loaded)
            # loading PyTorch takes about as long as Ray takes to start in the meantime
            from rayfl.runs.launch import Launch, launch_run

        data, starts = data_folder(options.data_dir).absolute(), options.starts or cache_folder() / "starts"
        callbacks = tuple(options.callbacks) if isinstance(options.callbacks, list | tuple) else options.callbacks
        options = replace(options, data_dir=data, starts=starts, callbacks=callbacks)
        return launch_run(loaded, Launch(options, kept=cluster, mirror=mirror), self._console, prepared)

    def _cluster(self) -> KeptCluster | None:
        if self._options.backend == "inline":
            return None
        if self._kept is None:
            from rayfl.backends.ray.kept_cluster import KeptCluster, cluster_of_trials  # `inline` works without Ray

            self._kept = cluster_of_trials() or self._stack.enter_context(KeptCluster())
        return self._kept


def _loaded(
    scenario: ScenarioLike | None, overrides: Overrides, quick: bool, begun: Path | None, options: RunOptions
) -> Scenario:
    """The scenario to run; by default that of the run to resume, with `more` rounds added to its last phase."""
    scenario = begun if scenario is None else scenario
    if scenario is None:
        raise ScenarioError("scenario: name a scenario, or a run to resume")
    data_folder(options.data_dir)  # raises if the folder does not exist
    loaded = load_scenario(scenario, overrides, quick)
    *before, last = loaded.phases
    longer = last.model_copy(update={"rounds": last.rounds + options.more})
    return loaded.model_copy(update={"phases": (*before, longer)}) if options.more else loaded


def run(
    scenario: str | Path | dict[str, Any] | Scenario | None = None,
    *,
    overrides: Overrides = (),
    quick: bool = False,
    backend: Backend = "ray",
    address: str | None = None,
    out: str | Path = OUT,
    folder: str | Path | None = None,
    data_dir: str | Path | None = None,
    callbacks: Given = (),
    starts: str | Path | None = None,
    centralise: Centralise = False,
    resume: str | Path | None = None,
    more: int = 0,
    minutes: float | None = None,
    curves: bool = True,
    console: Console | None = None,
    quiet: bool = False,
) -> Result:
    """Runs a scenario and returns its result.

    A run that fails or is interrupted (Ctrl-C, SIGTERM, SIGHUP, `minutes`) keeps its metrics so far and the model of
    its last committed round; `status.json` in its folder says what happened and which round the model is from.

    Args:
        scenario: A name, the path of a TOML file, a table, or a `Scenario`; None for that of the run to resume.
        overrides: `{"phases.0.rounds": 10}` or `["phases.0.rounds=10"]`.
        quick: Whether to apply the scenario's [quick] table before the overrides.
        backend: `ray`, or `inline` to run everything in this process, for debugging. Both give the same bits. Runs
            in several threads of one process take turns, except on a cluster that the program itself has connected to.
        address: Address of a Ray cluster (`auto`: the one this machine belongs to). By default the cluster that this
            program is connected to, else that of RAY_ADDRESS, else one started on this machine for the run.
        out: Where to create the run's folder, as `<out>/<name>-<time>`: a path, or a URI such as `s3://bucket/runs`
            for clusters without a shared file system; see docs/how-to/resume.md.
        folder: The folder of the run, as a path or URI, instead of a new one in `out`.
        data_dir: The folder with real data; by default RAYFL_DATA or ~/.cache/rayfl/data.
        callbacks: Objects or classes derived from `rayfl.Callback`, called after those that the scenario names.
        starts: Where to keep the models of scenarios that others start from; by default `starts` in $RAYFL_CACHE or
            ~/.cache/rayfl.
        centralise: Runs the scenario's centralised counterpart instead; "keep_momentum" also carries the optimiser's
            momentum from pass to pass. See `rayfl.runs.centralised`.
        resume: The folder or URI of a run that was interrupted, killed or lost. The run continues there from its last
            checkpoint, on any number of workers, with the bits of an undisturbed run (except for `secure` noise, which
            is charged again), or starts again if it has no checkpoint. With more rounds than before, a finished run
            continues beyond its end; without, resuming it raises a ResourceError and changes nothing. Only rounds
            ahead, resources, checkpoint and callbacks may differ.
        more: Only with `resume`: how many rounds to add to the last phase.
        minutes: Interrupts the run after so many minutes, its start included, as SIGTERM would: it ends after the
            current round, with a checkpoint, and raises a KeyboardInterrupt. Only in the main thread.
        curves: Whether to draw `curves.png` in the end; `rayfl report` and `rayfl plot` draw without it.
        console: Where to print progress; by default to stdout, and in a notebook to one block that ends as the result.
        quiet: Prints nothing.

    Returns:
        The final model, the metrics, and the folder with the records.

    Raises:
        ScenarioError: The scenario is wrong; raised before anything starts.
        DataError: The data is missing or wrong; raised before anything starts.
        ResourceError: A resource that the run needs is missing or was lost.
        DivergenceError: The server's step left values that are not finite.
        ClientError: A client update failed; a `RayflError` too.

    Example:
        A short run of CyclicFL in this process, on generated handwriting; `rayfl.run("femnist_cyclic")` runs all of it
        on Ray:

        >>> import rayfl
        >>> short = {"phases.cyclic.rounds": 1, "phases.federated.until": 2}
        >>> short |= {"data.source": "generated", "data.clients": 4}
        >>> result = rayfl.run("femnist_cyclic", overrides=short, backend="inline", quiet=True)
        >>> result.metrics.select(["phase", "round"]).to_pylist()
        [{'phase': 'cyclic', 'round': 1}, {'phase': 'federated', 'round': 2}]
    """
    options = RunOptions(
        backend=backend,
        address=address,
        out=out,
        folder=folder,
        data_dir=data_dir,
        callbacks=callbacks,
        starts=starts,
        centralise=centralise,
        resume=resume,
        more=more,
        minutes=minutes,
        curves=curves,
    )
    return run_with(options, scenario, overrides, quick, console_of(console, quiet))


def run_with(
    options: RunOptions,
    scenario: ScenarioLike | None,
    overrides: Overrides = (),
    quick: bool = False,
    console: Console | None = None,
    prepared: Prepared | None = None,
) -> Result:
    """Runs a scenario as `rayfl.run` does, with the data in `prepared` if it is that of the scenario."""
    options.check_out()
    anchored = options.anchored()
    with Session(backend=options.backend, address=options.address, console=console) as session:
        return session._run(scenario, overrides, quick, anchored, prepared)
