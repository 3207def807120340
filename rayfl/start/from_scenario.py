"""Runs a scenario once, so that others can start from its final model."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.errors import DivergenceError, ResourceError
from rayfl.fingerprint.recorded import recorded
from rayfl.lifecycle.in_place import How, move_aside, run_in_place
from rayfl.report.status import readable_status
from rayfl.start.source import Source, from_run


def run_once(
    scenario: Scenario, digest: str, folder: Path, run: Callable[[Path, How], None], say: Callable[[str], None]
) -> Source:
    """The final model of a scenario: reuses an earlier run, continues a stopped one, or runs it.

    Other processes that need the same model wait meanwhile.

    Args:
        scenario: The scenario to run.
        digest: A digest of everything that its result depends on.
        folder: Holds one folder for each digest.
        run: Runs the scenario with its records in the given folder, or resumes the run there.
        say: Receives the reason if a stopped run has to start over.

    Raises:
        ResourceError: The folder cannot be written to or locked.
        DivergenceError: An earlier run diverged, as it would again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{scenario.name}-{digest[:16]}"
    with _locked(kept.with_name(f"{kept.name}.lock")):
        status = readable_status(kept, lambda damage: say(f"{damage}; the run continues without it"))
        if status is not None and status.get("diverged"):
            raise DivergenceError(
                f"start.scenario '{scenario.name}': diverged in '{kept}' ({status['reason']}); change its training, or "
                "remove that folder to run it again"
            )
        if status is None or status["status"] != "finished":
            run_in_place(kept, True, lambda how: run(kept, how), lambda: move_aside(kept), say)
    found = from_run(kept)
    origin = {**found.origin, "kind": "scenario", "name": scenario.name, "digest": digest, "data": recorded(kept).data}
    return Source(found.state, origin, f"start.scenario '{scenario.name}'")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ResourceError(f"cannot lock '{path}': {error.strerror}; set RAYFL_CACHE to another folder") from error
    with lock:  # closing it unlocks
        yield
