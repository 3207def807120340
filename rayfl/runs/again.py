"""A run in a folder that was named before: it begins there, or continues if an earlier attempt has begun it.

For schedulers that repeat a failed command, such as Kubernetes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from rayfl.remote_folder import located
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.runs.options import RunOptions
from rayfl.runs.run_lock import LOCK_SILENT_S, is_held
from rayfl.runs.status import STATUS

ASKS_EVERY_S = 5.0


def resume_or_start(options: RunOptions, folder: str | Path, say: Callable[[str], None]) -> RunOptions | None:
    """How to begin or continue a run; waits for the lock of an earlier attempt that died elsewhere to become stale.

    Args:
        options: How to begin it.
        folder: Its folder or URI.
        say: Receives what is done.

    Returns:
        The options; None if the run has finished.
    """
    place = located(folder)
    if isinstance(place, Path):
        _wait_until_free(place, say)  # first, since that process may begin the run meanwhile, or finish it
        begun = (place / SCENARIO_FILE).is_file()
        status = (place / STATUS).read_bytes() if (place / STATUS).is_file() else None
    else:
        begun, status = place.holds(SCENARIO_FILE), place.read(STATUS)
    if begun and _status_in(status) == "finished":
        say(f"the run in '{place}' has finished")
        return None
    say(f"{'continues the run' if begun else 'begins a run'} in '{place}'")
    return options.begun_in(folder, begun)


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
