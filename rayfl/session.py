"""`rayfl.Session`: consecutive runs that share Ray and their workers. Loads PyTorch only when a run needs it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from rayfl.config.loading import Overrides, load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.folders import cache_folder, data_folder
from rayfl.errors import ScenarioError
from rayfl.remote_folder import RemoteFolder, local, located
from rayfl.report.folder import check_writable, scenario_of

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Given
    from rayfl.centralised import Centralise
    from rayfl.cluster.kept_cluster import KeptCluster
    from rayfl.lifecycle.mirror import Mirror
    from rayfl.result import Result

Backend = Literal["ray", "inline"]

OUT = "runs"
"""The default parent of the folders of runs."""

DATA = "but rayfl reads it from the disk of this machine: use a folder"


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

    Raises:
        ScenarioError: See `check_backend`.

    Example:
        >>> import rayfl
        >>> from rich.console import Console
        >>> short = {"data.source": "generated", "data.clients": 4, "phases.federated.rounds": 1}
        >>> with rayfl.Session(backend="inline", console=Console(quiet=True)) as session:
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
    ) -> None:
        check_backend(backend, address)
        self._backend, self._address, self._console = backend, address, console or Console()
        # absolute paths, since a connection to Ray may change the working directory
        self._out, self._data_dir = located(out), data_dir
        self._starts = local(starts, "starts", DATA) if starts else None
        if data_dir:
            local(data_dir, "data_dir", DATA)
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
    ) -> Result:
        """Runs a scenario, with the arguments, the result and the errors of `rayfl.run`."""
        if resume and folder:
            raise ScenarioError("folder: a resumed run continues in its own folder; leave this out")
        if more and (not resume or scenario is not None or more < 0):
            raise ScenarioError("more: only works with resume, and must be a number of rounds above 0")
        chosen = resume or folder
        place = located(chosen) if chosen else self._out
        if not isinstance(place, RemoteFolder):
            begun = scenario_of(place) if resume else None
            check_writable(place)
            loaded = self._loaded(scenario, overrides, quick, begun, more)
            folder = place if chosen else None
            return self._carry_out(loaded, place, folder, callbacks, centralise, resume is not None)
        from rayfl.lifecycle.working_folder import WorkingFolder, check_holds_no_run, new_place

        with WorkingFolder(self._console) as working:
            place.check_writable()
            if resume:
                working.download(place)
            elif folder:
                check_holds_no_run(place)
            begun = scenario_of(working.path) if resume else None
            loaded = self._loaded(scenario, overrides, quick, begun, more)
            mirror = working.publish_at(place if chosen else new_place(place, loaded.name, bool(centralise)))
            own = working.path
            result = self._carry_out(loaded, own.parent, own, callbacks, centralise, resume is not None, mirror)
            working.lasts_as_long_as(result)
            return result

    def _loaded(
        self,
        scenario: str | Path | dict[str, Any] | Scenario | None,
        overrides: Overrides,
        quick: bool,
        begun: Path | None,
        more: int,
    ) -> Scenario:
        """The scenario to run; by default that of the run to resume, with `more` rounds added to its last phase."""
        scenario = begun if scenario is None else scenario
        if scenario is None:
            raise ScenarioError("scenario: name a scenario, or a run to resume")
        data_folder(self._data_dir)  # raises if the folder does not exist
        loaded = load_scenario(scenario, overrides, quick)
        *before, last = loaded.phases
        longer = last.model_copy(update={"rounds": last.rounds + more})
        return loaded.model_copy(update={"phases": (*before, longer)}) if more else loaded

    def _carry_out(
        self,
        loaded: Scenario,
        out: Path,
        folder: Path | None,
        callbacks: Given,
        centralise: Centralise,
        resumes: bool,
        mirror: Mirror | None = None,
    ) -> Result:
        kept = self._cluster()
        if kept and loaded.start is None:  # a start that must run first may wait for other programs
            kept.connect_early(self._address, loaded.resources.dashboard)
        # loading PyTorch takes about as long as Ray takes to start in the meantime
        from rayfl.lifecycle.launch import Launch, carry_out

        launch = Launch(
            data_folder(self._data_dir).absolute(),
            out,
            folder,
            self._backend,
            self._address,
            tuple(callbacks) if isinstance(callbacks, list | tuple) else callbacks,
            self._starts or cache_folder() / "starts",
            centralise,
            kept=kept,
            resumes=resumes,
            mirror=mirror,
        )
        return carry_out(loaded, launch, self._console)

    def _cluster(self) -> KeptCluster | None:
        if self._backend == "inline":
            return None
        if self._kept is None:
            from rayfl.cluster.kept_cluster import KeptCluster, cluster_of_trials  # `inline` works without Ray

            self._kept = cluster_of_trials() or self._stack.enter_context(KeptCluster())
        return self._kept


def check_backend(backend: str, address: str | None) -> None:
    """Rejects an unknown backend, and an address that has no effect.

    Raises:
        ScenarioError: The backend is not `ray` or `inline`, or is `inline` and has no use for an address.
    """
    if backend not in ("ray", "inline"):
        raise ScenarioError(f"backend: '{backend}' is neither 'ray' nor 'inline'")
    if address and backend == "inline":
        raise ScenarioError("address: has no effect without Ray (backend 'inline'); leave it out")
