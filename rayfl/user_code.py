"""Reports exceptions from user code, with the traceback of that code only."""

from __future__ import annotations

import traceback

from rayfl.passwords import without_passwords

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
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY):
        return f"{what} ran out of memory ({said or 'MemoryError'})"
    line = f"{what} raised {type(error).__name__}" + (f": {said}" if said else "")
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    while frames and str(frames.tb_frame.f_globals.get("__name__")).split(".")[0] == "importlib":
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        return line
    return f"{line}\n{''.join(traceback.format_exception(type(error), error, frames)).rstrip()}"
