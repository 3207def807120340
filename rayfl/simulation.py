"""`rayfl.run`: runs a scenario and writes its records. Asks Ray to start before it loads PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rayfl.config.loading import Overrides
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.session import OUT, Backend, Session

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Given
    from rayfl.centralised import Centralise
    from rayfl.result import Result


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
    console: Console | None = None,
) -> Result:
    """Runs a scenario and returns its result.

    A run that fails or is interrupted (Ctrl-C, SIGTERM, SIGHUP) keeps its metrics so far and the model of its last
    committed round; `status.json` in its folder says what happened and which round the model is from.

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
            momentum from pass to pass. See `rayfl.centralised`.
        resume: The folder or URI of a run that was interrupted, killed or lost. The run continues there from its last
            checkpoint, on any number of workers, with the bits of an undisturbed run (except for `secure` noise, which
            is charged again), or starts again if it has no checkpoint. With more rounds than before, a finished run
            continues beyond its end; without, resuming it raises a ResourceError and changes nothing. Only rounds
            ahead, resources, checkpoint and callbacks may differ.
        more: Only with `resume`: how many rounds to add to the last phase.
        console: Where to print progress; `Console(quiet=True)` prints nothing.

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
        >>> from rich.console import Console
        >>> short = {"phases.cyclic.rounds": 1, "phases.federated.until": 2}
        >>> short |= {"data.source": "generated", "data.clients": 4}
        >>> result = rayfl.run("femnist_cyclic", overrides=short, backend="inline", console=Console(quiet=True))
        >>> result.metrics.select(["phase", "round"]).to_pylist()
        [{'phase': 'cyclic', 'round': 1}, {'phase': 'federated', 'round': 2}]
    """
    if out != OUT and (folder or resume):
        raise ScenarioError(f"out: has no effect with {'folder' if folder else 'resume'}; leave it out")
    with Session(
        backend=backend, address=address, out=out, data_dir=data_dir, starts=starts, console=console
    ) as session:
        return session.run(
            scenario,
            overrides=overrides,
            quick=quick,
            folder=folder,
            callbacks=callbacks,
            centralise=centralise,
            resume=resume,
            more=more,
        )
