"""The exit status of a command, and one message instead of a traceback."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

from rayfl.errors import RayflError
from rayfl.interruption import TimeOver, interruptible
from rayfl.passwords import without_passwords

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of SIGINT, as a shell reports it."""


def exit_status(command: Callable[[], int], interrupted: str = "interrupted") -> int:
    """Runs a command and prints its error on stderr if it fails.

    Characters that the output's encoding lacks, as in the name of a client, are printed as `?`.

    Args:
        command: Does the work and returns the exit status.
        interrupted: The message after Ctrl-C, SIGTERM, SIGHUP, or `--minutes`.

    Returns:
        The status of the command; 1 after an error that the user can fix; 130 after Ctrl-C, SIGTERM, SIGHUP, or
        `--minutes`.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # on stderr, Python escapes them
    try:
        with interruptible():
            return command()
    except RayflError as error:
        print(f"error: {without_passwords(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        if isinstance(error, TimeOver):
            print("--minutes: the time is over", file=sys.stderr)
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
