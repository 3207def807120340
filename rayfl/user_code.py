"""What a user's own code raised, reported as theirs."""

from __future__ import annotations

import traceback

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
"""How PyTorch says on the CPU and on CUDA, in a RuntimeError, what Python says by MemoryError."""


def their_traceback(error: BaseException) -> str:
    """The traceback of an error, from the first frame that is not rayfl's own; all of it where there is none."""
    frames = error.__traceback__
    while frames and str(frames.tb_frame.f_globals.get("__name__")).split(".")[0] == "rayfl":
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))


def report_as_theirs(error: BaseException, what: str) -> str:
    """The text of an error that a user's own code raised.

    To be called where the error is caught, in the function that called the user's code: frames up to and including
    that function, and those of Python's import system, are left out of the traceback.

    Args:
        error: What was raised. Ask for `(Exception, SystemExit)`, since a user's module may also call `sys.exit`.
        what: Whose code it was, with the key that names it: "model: mine:Net".

    Returns:
        One line that says what was raised, followed by the traceback of the user's own code where there is one. An
        exit of the process and a lack of memory are one line alone.
    """
    if isinstance(error, SystemExit):
        return f"{what} tried to exit the process (SystemExit: {error.code})"
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY):
        return f"{what} asks for more memory than there is ({said or 'MemoryError'})"
    line = f"{what} raised {type(error).__name__}" + (f": {said}" if said else "")
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    while frames and str(frames.tb_frame.f_globals.get("__name__")).split(".")[0] == "importlib":
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        return line
    return f"{line}\n{''.join(traceback.format_exception(type(error), error, frames)).rstrip()}"
