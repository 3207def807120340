"""The reason of a failure, in one line."""

from __future__ import annotations

import traceback

from rayfl.errors import RayflError
from rayfl.interruption import HungUp, StopRequested, Terminated
from rayfl.passwords import without_passwords

LONGEST = 500
"""Characters; an error of a network can contain a whole model."""

_TRACEBACK = "Traceback (most recent call last):"


def one_line(error: BaseException) -> str:
    """Returns the place that rayfl names and the exception behind it, without a traceback or passwords of URIs.

    Args:
        error: An error, or the interrupt that ended a run.
    """
    match error:
        case HungUp():
            text = "SIGHUP"
        case Terminated():
            text = "SIGTERM"
        case StopRequested():
            text = "stopped before its first round"
        case KeyboardInterrupt():
            text = "Ctrl-C"
        case RayflError():
            text = _without_traceback(str(error))
        case _:
            text = "".join(traceback.format_exception_only(error))
    line = without_passwords(" ".join(text.split()))
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _without_traceback(text: str) -> str:
    """Leaves out the frames of a traceback within `text`, but keeps the exception below them."""
    before, header, after = text.rpartition(_TRACEBACK)
    if not header:
        return text
    exception = " ".join(line for line in after.splitlines() if line and not line.startswith(" "))
    place = before.partition(_TRACEBACK)[0].strip().removesuffix(":")
    return place if place.endswith(exception) else f"{place}: {exception}"
