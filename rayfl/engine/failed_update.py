"""What goes wrong in a client's update, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rayfl.engine.device import device_limits_explained
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.user_code import their_traceback


@contextmanager
def told_as_client_error(client: int, host: int, phase: str, round: int, who: str = "") -> Iterator[None]:
    """Whatever is raised within becomes a ClientError.

    Args:
        client: Whose update it is.
        host: Where it runs.
        phase: The phase's name, or what else the client trains for.
        round: The round within the scenario.
        who: Instead of the client's number, where it is that of a pool of samples.

    Raises:
        ClientError: Instead of what was raised.
        ResourceError: The device has too little memory, which is not the client's fault.
    """
    try:
        with device_limits_explained():
            yield
    except ResourceError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise anything, and the run must say where
        if isinstance(error, RayflError):
            detail, diverged = str(error), isinstance(error, DivergenceError)
        else:
            detail, diverged = "its code raised\n" + their_traceback(error), False
        raise ClientError(client, host, phase, round, detail, diverged, who) from None
