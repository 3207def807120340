"""What a run is started with, whoever starts it: `rayfl.run`, a session, the command line, a submission or a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rayfl.errors import ScenarioError
from rayfl.remote_folder import RemoteFolder, local, located

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Given
    from rayfl.runs.archive import GridPlace
    from rayfl.runs.centralised import Centralise

Backend = Literal["ray", "inline"]

OUT = "runs"
"""The default parent of the folders of runs."""

MOST_MINUTES = 10_000_000
"""19 years; the timer of a process has a limit."""

_FLAGS = {"curves": (True, False), "centralise": (True, False, "keep_momentum")}

DATA = "but rayfl reads it from the disk of this machine: use a folder"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is started; `rayfl.run` explains each option, except `place`, the run's place in a grid.

    Raises:
        ScenarioError: The backend is unknown, or an option has no effect beside the others.
    """

    backend: Backend = "ray"
    address: str | None = None
    out: str | Path = OUT
    folder: str | Path | None = None
    data_dir: str | Path | None = None
    callbacks: Given = ()
    starts: str | Path | None = None
    centralise: Centralise = False
    resume: str | Path | None = None
    more: int = 0
    minutes: float | None = None
    curves: bool = True
    place: GridPlace | None = None

    def __post_init__(self) -> None:
        if self.backend not in ("ray", "inline"):
            raise ScenarioError(f"backend: '{self.backend}' is neither 'ray' nor 'inline'")
        if self.address and self.backend == "inline":
            raise ScenarioError("address: has no effect without Ray (backend 'inline'); leave it out")
        if self.resume and self.folder:
            raise ScenarioError("folder: a resumed run continues in its own folder; leave this out")
        more: Any = self.more
        minutes: Any = self.minutes
        if more and (not self.resume or not isinstance(more, Integral) or more < 0):
            raise ScenarioError("more: only works with resume, and must be a number of rounds above 0")
        if minutes is not None and not (isinstance(minutes, Real) and 0 < float(minutes) <= MOST_MINUTES):
            raise ScenarioError(f"minutes: must be a number above 0 and at most {MOST_MINUTES:,} (got {minutes!r})")
        for name, allowed in _FLAGS.items():
            if (value := getattr(self, name)) not in allowed:
                raise ScenarioError(f"{name}: must be {' or '.join(map(str, allowed))} (got {value!r})")

    @property
    def run_folder(self) -> str | Path | None:
        """The folder or URI of the run; None if it is to be created in `out`."""
        return self.resume or self.folder

    def check_out(self) -> None:
        """Checks that `out` was not given where it has no effect.

        Raises:
            ScenarioError: It was given with `folder` or `resume`.
        """
        if self.out != OUT and self.run_folder:
            raise ScenarioError(f"out: has no effect with {'folder' if self.folder else 'resume'}; leave it out")

    def anchored(self) -> RunOptions:
        """The options with absolute paths, since a connection to Ray may change the working directory.

        Raises:
            ScenarioError: A path is a URI where none can be.
        """
        out = located(self.out)
        starts = local(self.starts, "starts", DATA) if self.starts else None
        if self.data_dir:
            local(self.data_dir, "data_dir", DATA)
        return replace(self, out=self.out if isinstance(out, RemoteFolder) else out, starts=starts)

    def begun_in(self, folder: str | Path, begun: bool) -> RunOptions:
        """The options of a run in a folder or at a URI, which continues there if it has begun."""
        return replace(self, out=OUT, folder=None if begun else folder, resume=folder if begun else None)

    def within(self, folder: Path) -> RunOptions:
        """The options of the same run in a local folder."""
        return replace(self, resume=folder) if self.resume else replace(self, folder=folder)
