"""A scenario that is run first, once, and whose final model others start from."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.errors import DivergenceError, ResourceError
from rayfl.fingerprint.recorded import recorded
from rayfl.lifecycle.in_place import How, run_in_place
from rayfl.report.status import read_status
from rayfl.start.source import Source, from_run


def run_once(
    scenario: Scenario, digest: str, folder: Path, run: Callable[[Path, How], None], say: Callable[[str], None]
) -> Source:
    """The final model of a scenario, from an earlier run of it if there is one, which goes on if it was stopped.

    Whoever else wants the same meanwhile waits for it.

    Args:
        scenario: What to run.
        digest: Of everything that its result depends on.
        folder: Where starts are kept, one folder for each digest.
        run: Runs the scenario, with its records in the given folder, or goes on with what is there.
        say: Told why a run that had been stopped begins again.

    Raises:
        ResourceError: The folder cannot be written to or locked.
        DivergenceError: An earlier run of it diverged, as it would again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{scenario.name}-{digest[:16]}"
    with _locked(kept.with_name(f"{kept.name}.lock")):
        status = read_status(kept)
        if status is not None and status.get("diverged"):
            raise DivergenceError(
                f"start.scenario '{scenario.name}': diverged in '{kept}' ({status['reason']}); change its training, or "
                "remove that folder to run it again"
            )
        if status is None or status["status"] != "finished":
            run_in_place(kept, True, lambda how: run(kept, how), lambda: _clear(kept), say)
    found = from_run(kept)
    origin = {**found.origin, "kind": "scenario", "name": scenario.name, "digest": digest, "data": recorded(kept).data}
    return Source(found.state, origin, f"start.scenario '{scenario.name}'")


def _clear(folder: Path) -> None:
    """Makes room for a run again where an earlier one was stopped."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-stopped-{sum(1 for _ in folder.parent.iterdir())}"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ResourceError(f"cannot lock '{path}': {error.strerror}; set RAYFL_CACHE to another folder") from error
    with lock:  # closing it unlocks
        yield
