"""`rayfl.submit`: starts a run on a cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

from rayfl.backends.ray.capacity import check_ever_fits
from rayfl.backends.ray.connection import check_dashboard, connected
from rayfl.backends.ray.placement import resources_of
from rayfl.backends.ray.private import started_cluster
from rayfl.backends.ray.user_code import pack_main_objects
from rayfl.callbacks.callback import Callback, Given
from rayfl.callbacks.selection import checked
from rayfl.config.loader import Overrides, load_scenario
from rayfl.config.scenario import Scenario
from rayfl.console import print_warning
from rayfl.data.files import cache_folder, data_folder
from rayfl.engine.plan.scenario_checks import check_scenario
from rayfl.errors import ScenarioError
from rayfl.notebook import console_of
from rayfl.remote_folder import local
from rayfl.runs.centralised import Centralise
from rayfl.runs.folder import check_holds_no_run, new_folder
from rayfl.runs.options import OUT, RunOptions
from rayfl.runs.resolution import resolve
from rayfl.runs.session import ScenarioLike
from rayfl.service.handle import Handle
from rayfl.service.run_actor import MOST_PIECES, NAMESPACE, PIECE_BYTES, RunActor, Submission

CALLS_AT_ONCE = 64
"""Some handles may wait for a run while others request its metrics."""

AT_URI = (
    "and handles read a submitted run's records on the machine that submitted it: name a folder there, or submit "
    "`rayfl run` itself as a Ray job, which can write to a URI"
)


def submit(
    scenario: str | Path | dict[str, Any] | Scenario,
    *,
    overrides: Overrides = (),
    quick: bool = False,
    address: str | None = None,
    out: str | Path = OUT,
    folder: str | Path | None = None,
    data_dir: str | Path | None = None,
    callbacks: Given = (),
    starts: str | Path | None = None,
    centralise: Centralise = False,
    name: str | None = None,
    priority: int = 0,
    console: Console | None = None,
    quiet: bool = False,
) -> Handle:
    """Starts a run on a cluster and returns at once; the run belongs to the cluster and outlives this program.

    If its own process dies, Ray starts it again up to `resources.restarts` times, and it continues after the last
    checkpoint; not if its callbacks and own code take more than 8 MiB. If the cluster is busy, the run waits for
    resources and reports that in `Handle.status`. Its output goes to run.log in its folder.

    Args:
        scenario: As for `rayfl.run`.
        overrides: As for `rayfl.run`.
        quick: As for `rayfl.run`.
        address: Address of a Ray cluster that outlives this program (`auto`: the one this machine belongs to); by
            default the one that this program is connected to, else that of RAY_ADDRESS. The program stays connected.
        out: As for `rayfl.run`; a folder on this machine, where the run's own process works.
        folder: As for `rayfl.run`, on this machine.
        data_dir: As for `rayfl.run`.
        callbacks: As for `rayfl.run`; they are copied to the cluster and called there.
        starts: As for `rayfl.run`, on this machine.
        centralise: As for `rayfl.run`.
        name: The name for `rayfl.attach`; by default that of the run's folder.
        priority: Of runs that wait for room on the cluster, those with a higher one start first, and else those that
            were submitted first.
        console: Where to print warnings, as for `rayfl.run`.
        quiet: Prints nothing.

    Returns:
        A handle to follow, stop and wait for the run.

    Raises:
        ScenarioError: The scenario is invalid, or an active run already has this name.
        DataError: The data folder does not exist; the run itself loads the data.
        ResourceError: No cluster answers, or the workers would not fit on it even if it were idle.

    Example::

        handle = rayfl.submit("femnist_cyclic", address="auto", name="cyclic")
        rayfl.attach("cyclic", address="auto").metrics()     # also in another program
    """
    options = RunOptions(
        address=address, out=out, folder=folder, data_dir=data_dir, callbacks=callbacks, starts=starts,
        centralise=centralise,
    )  # fmt: skip
    return submit_with(options, scenario, overrides, quick, name, priority, console_of(console, quiet))


def submit_with(
    options: RunOptions,
    scenario: ScenarioLike,
    overrides: Overrides,
    quick: bool,
    name: str | None,
    priority: int,
    console: Console,
) -> Handle:
    """Starts a run on a cluster as `rayfl.submit` does."""
    if options.out != OUT and options.folder:
        raise ScenarioError("out: has no effect with folder; leave it out")
    resolved = load_scenario(scenario, overrides, quick)
    checkable = resolve(resolved)
    check_scenario(checkable)
    check_dashboard(resolved.resources.dashboard)
    copied = [_pickled(callback, index) for index, callback in enumerate(checked(options.callbacks, checkable))]
    out, data = local(options.out, "out", AT_URI), data_folder(options.data_dir).absolute()
    own = local(options.folder, "folder", AT_URI) if options.folder else None
    main_objects = pack_main_objects(resolved)
    connected(options.address)
    check_ever_fits(resolved.resources, resolved.resources.fewest_hosts)
    if started_cluster():
        print_warning(console, "this program started the cluster, so the run ends when this program does")
    if own is None:
        own = new_folder(out, resolved.name, datetime.now())
    else:
        check_holds_no_run(own)
    name = name or own.name
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    starts = Path(options.starts).absolute() if options.starts else cache_folder() / "starts"
    remote_options = replace(options, address=None, data_dir=data, callbacks=copied, starts=starts)
    packed = Submission(resolved, own, remote_options, main_objects, priority, time.time()).packed()
    restarts = _restarts(resolved, len(packed), console)
    detached: Any = ray.remote(RunActor).options(
        name=name, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_concurrency=CALLS_AT_ONCE,
        scheduling_strategy=here, max_restarts=restarts, max_task_retries=-1 if restarts else 0,
    )  # fmt: skip
    try:
        actor = detached.remote(*packed)
    except ValueError:
        if options.folder is None:
            own.rmdir()
        raise ScenarioError(
            f"name: an active run on this cluster is already called '{name}' (rayfl.attach('{name}')); choose another"
        ) from None
    ray.get(actor.start.remote())
    return Handle(name, actor, own)


def _restarts(scenario: Scenario, pieces: int, console: Console) -> int:
    """How often Ray starts the run's process again; never if it cannot keep all of the submission, which is said."""
    restarts = resources_of(scenario).restarts
    if pieces <= MOST_PIECES or not restarts:
        return restarts
    kept, whole = (number * PIECE_BYTES / 2**20 for number in (MOST_PIECES, pieces))
    warning = (
        f"the run's callbacks and own code take {whole:.0f} MiB, of which Ray keeps at most {kept:.0f}: if "
        "the process of the run dies, it is not started again; let callbacks read large data from files"
    )
    print_warning(console, warning)
    return 0


def _pickled(callback: Callback, index: int) -> Callback:
    """Returns the callback after checking that it can be pickled."""
    try:
        cloudpickle.dumps(callback)
    except Exception as error:  # pickling calls the user's code
        raise ScenarioError(
            f"callbacks[{index}]: cannot be sent to the cluster ({type(error).__name__}: {error})"
        ) from None
    return callback
