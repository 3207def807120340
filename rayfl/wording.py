"""How errors read (those of pydantic, those of user code with its traceback, any in one line), and how numbers do."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rayfl.errors import RayflError
from rayfl.interruption import HungUp, StopRequested, Terminated, TimeOver
from rayfl.passwords import without_passwords

if TYPE_CHECKING:
    from pydantic import ValidationError


KeyPath = tuple[int | str, ...]
"""The place of a value in nested tables and lists: ("phases", 0, "rounds")."""

_OWN_WORDS = {
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
}
"""Replacements for pydantic's messages about Python types."""


def in_words(
    error: ValidationError, user_input: Any, unknown_key: Callable[[KeyPath], str] = lambda path: "unknown key"
) -> dict[KeyPath, str]:
    """Rewords an error of pydantic for the user: the allowed values, and the given one.

    Args:
        error: The error about `user_input`.
        user_input: The values that the user wrote.
        unknown_key: Makes the sentence about a key that does not exist, from its path.

    Returns:
        A sentence for every wrong part of `user_input`, by its path; `user_input` itself is at ().
    """
    messages: dict[KeyPath, list[str]] = {}
    values: dict[KeyPath, Any] = {}
    details = error.errors(include_url=False)
    places = [_locate(detail["loc"], user_input, detail["type"] == "missing")[0] for detail in details]
    for detail in details:
        if detail["type"] == "too_short" and any(_within(other["loc"], detail["loc"]) for other in details):
            continue  # pydantic leaves out wrong elements, and then finds too few
        missing = detail["type"] == "missing"
        path, value = _locate(detail["loc"], user_input, missing)
        if isinstance(value, Mapping) and any(_within(other, path) for other in places):
            continue  # of a union, it is the table that was meant, and an error inside it says what is wrong
        if detail["type"] == "extra_forbidden":
            text = unknown_key(path)
        elif detail["type"] in _OWN_WORDS:
            text = _OWN_WORDS[detail["type"]]
        else:
            message = detail["msg"].removeprefix("Value error, ")
            text = message.replace("Input should be ", "must be ").replace("String should ", "must ")
        values[path] = value
        if text not in messages.setdefault(path, []):
            messages[path].append(text)
    return {
        path: " or ".join(texts) + ("" if _not_shown(values[path]) else f" (got {_shortened(repr(values[path]))})")
        for path, texts in messages.items()
    }


def _within(location: KeyPath, outer: KeyPath) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _not_shown(value: Any) -> bool:
    tables = isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value)
    return value is None or isinstance(value, Mapping) or tables


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _locate(location: KeyPath, value: Any, missing: bool) -> tuple[KeyPath, Any]:
    """The part of an error's location that the user wrote, and its value: pydantic adds the tags of unions."""
    path: KeyPath = ()
    for depth, key in enumerate(location):
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            if depth == len(location) - 1:
                return ((*path, key), None) if missing else (path, value)
            if not isinstance(value, Mapping):
                return path, value
        else:
            path = (*path, key)
    return path, value


_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""Words in the RuntimeError by which PyTorch reports a lack of memory, on the CPU and on CUDA."""


def their_traceback(error: BaseException) -> str:
    """The traceback of an error, from the first frame outside rayfl; all of it if there is none."""
    frames = error.__traceback__
    while frames and str(frames.tb_frame.f_globals.get("__name__")).split(".")[0] == "rayfl":
        frames = frames.tb_next
    return without_passwords("".join(traceback.format_exception(type(error), error, frames or error.__traceback__)))


def report_as_theirs(error: BaseException, what: str) -> str:
    """The text of an error from user code.

    Call this in the function that called the user code and caught the error: the traceback leaves out frames up to and
    including that function, and those of Python's import system.

    Args:
        error: The exception. Catch `(Exception, SystemExit)`, since user code may also call `sys.exit`.
        what: The user code, with the key that names it: "model: mine:Net".

    Returns:
        One line on the exception, followed by the traceback of the user code if there is one. For an exit of the
        process and a lack of memory it is only the line. Without passwords of URIs, since errors are recorded.
    """
    return without_passwords(_reported(error, what))


def _reported(error: BaseException, what: str) -> str:
    if isinstance(error, SystemExit):
        return f"{what} tried to exit the process (SystemExit: {error.code})"
    message = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in message for words in _NO_MEMORY):
        return f"{what} ran out of memory ({message or 'MemoryError'})"
    line = f"{what} raised {type(error).__name__}" + (f": {message}" if message else "")
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    while frames and str(frames.tb_frame.f_globals.get("__name__")).split(".")[0] == "importlib":
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        return line
    return f"{line}\n{''.join(traceback.format_exception(type(error), error, frames)).rstrip()}"


LONGEST_LINE = 500
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
        case TimeOver():
            text = "its minutes were over"
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
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _without_traceback(text: str) -> str:
    """Leaves out the frames of a traceback within `text`, but keeps the exception below them."""
    before, header, after = text.rpartition(_TRACEBACK)
    if not header:
        return text
    exception = " ".join(line for line in after.splitlines() if line and not line.startswith(" "))
    place = before.partition(_TRACEBACK)[0].strip().removesuffix(":")
    return place if place.endswith(exception) else f"{place}: {exception}"


def duration(seconds: float) -> str:
    """Returns `0.4 s`, `12 s`, `3 min 20 s` or `2 h 5 min`; `–` if it is not finite."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, noun: str) -> str:
    """Returns `1 round` or `1,200 rounds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """Returns `45.20 %` for 0.452."""
    return f"{100 * share:.2f} %"
