"""A run in a folder that was named before: it begins there, or continues if an earlier attempt has begun it.

For schedulers that repeat a failed command, such as Kubernetes.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError
from rayfl.files import reading
from rayfl.remote_folder import located
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.runs.options import RunOptions
from rayfl.runs.run_lock import LOCK_SILENT_S, is_held
from rayfl.runs.status import STATUS

ASKS_EVERY_S = 5.0
RECORDS = SCENARIO_FILE, STATUS


def resume_or_start(
    options: RunOptions, folder: str | Path, say: Callable[[str], None], scenario: Callable[[], Scenario]
) -> RunOptions | None:
    """How to begin or continue a run; waits for the lock of an earlier attempt that died elsewhere to become stale.

    Args:
        options: How to begin it.
        folder: Its folder or URI.
        say: Receives what is done.
        scenario: Loads the scenario.

    Returns:
        The options; None if the run has finished, with as many rounds as the scenario has.

    Raises:
        ScenarioError: It has finished with another scenario.
    """
    place = located(folder)
    if isinstance(place, Path):
        _wait_until_free(place, say)  # first, since that process may begin the run meanwhile, or finish it
        begun, status = ((place / file).read_bytes() if (place / file).is_file() else None for file in RECORDS)
    else:
        begun, status = (place.read(file) for file in RECORDS)
    if begun is not None and _status_in(status) == "finished":
        from rayfl.runs.changes import goes_beyond  # loads PyTorch

        with reading(f"{place}/{SCENARIO_FILE}", error=ResourceError):
            tables = tomllib.loads(begun.decode())
        # that of a centralised counterpart is known only with the data
        if options.centralise or not goes_beyond(tables, scenario(), str(place)):
            say(f"the run in '{place}' has finished")
            return None
    say(f"{'begins a run' if begun is None else 'continues the run'} in '{place}'")
    return options.begun_in(folder, begun is not None)


def _status_in(content: bytes | None) -> object:
    try:
        return json.loads(content or b"{}")["status"]
    except (ValueError, TypeError, KeyError):
        return None  # the run says how it is damaged


def _wait_until_free(folder: Path, say: Callable[[str], None]) -> None:
    deadline, said = time.monotonic() + LOCK_SILENT_S, False
    while time.monotonic() < deadline and is_held(folder):
        if not said:
            say(f"waits up to {LOCK_SILENT_S:.0f} s for the process that holds '{folder}', unless it is still active")
            said = True
        time.sleep(ASKS_EVERY_S)  # a lock has no event for its release
