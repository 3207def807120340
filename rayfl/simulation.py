"""`rayfl.run`: runs a scenario and writes its records. Loads no PyTorch before it has asked Ray to start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rayfl.config.loading import Overrides
from rayfl.config.scenario import Scenario
from rayfl.session import Backend, Session

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
    out: str | Path = "runs",
    folder: str | Path | None = None,
    data_dir: str | Path | None = None,
    callbacks: Given = (),
    starts: str | Path | None = None,
    centralise: Centralise = False,
    resume: str | Path | None = None,
    more: int = 0,
    console: Console | None = None,
) -> Result:
    """Runs a scenario.

    A run that fails or is interrupted (Ctrl-C, SIGTERM) leaves its metrics so far and the model of its last committed
    round; `status.json` in its folder says what happened and which round the model is from.

    Args:
        scenario: A name, a path to a TOML file, a table, or a Scenario; None for that of the run to resume.
        overrides: `{"phases.0.rounds": 10}` or `["phases.0.rounds=10"]`.
        quick: Applies the scenario's [quick] table before the overrides.
        backend: `ray`, or `inline`: everything in this process, for debugging. Both give the same bits. Runs
            in several threads of one process take turns, except on a cluster that the program itself has connected to.
        address: Address of a Ray cluster (`auto`: the one this machine belongs to). By default the cluster that this
            program is connected to, else that of RAY_ADDRESS, else one started on this machine for the run.
        out: Where the run's folder is created, as `<out>/<name>-<time>`: a path, or a URI such as `s3://bucket/runs`
            for clusters without a shared file system, see docs/how-to/resume.md.
        folder: Use this folder, or this place at a URI, for the run instead of creating one in `out`.
        data_dir: Where the real data is; by default RAYFL_DATA or ~/.cache/rayfl/data.
        callbacks: Objects or classes derived from `rayfl.Callback`, called after those that the scenario names.
        starts: Where the models of scenarios that others start from are kept; by default `starts` in $RAYFL_CACHE or
            ~/.cache/rayfl.
        centralise: Run the scenario's centralised counterpart instead, which may "keep_momentum" from pass to pass;
            see `rayfl.centralised`.
        resume: The folder or URI of a run that was interrupted, killed or lost: it goes on there from its last
            checkpoint, on any hosts, to the bits of an undisturbed run (but for `secure` noise, which is charged
            again), or begins again where it has none. With more rounds than before it goes on beyond its end. Only
            rounds ahead, resources, checkpoint and callbacks may have changed.
        more: With `resume`: so many rounds more than its last phase had.
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
