"""The sections. Each runs in a process of its own, so that an error or a hang of one leaves the others alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from tools.gpu_check import bits, memory, speed
from tools.gpu_check.scene import Device, Finding

Section = Callable[[Device], Iterator[Finding]]

SECTIONS: dict[str, Section] = {
    "bits": bits.bits,
    "deterministic": bits.deterministic,
    "after": bits.after_other_work,
    "cpu": bits.cpu,
    "bare": speed.bare,
    "stacked": speed.stacked,
    "fractions": speed.fractions,
    "pfl": speed.pfl,
    "memory": memory.memory,
    "mps": speed.mps,
}
"""In the order of running: MPS, which can disturb other programs on the GPU, comes last."""


def carry_out(section: Section, device: Device, connection: Connection) -> None:
    """Runs one section in this process and sends its findings; the cause of an error is one of them."""
    os.setpgrp()  # so that the section ends with all processes that it started
    try:
        for finding in section(device):
            connection.send(finding)
    except BaseException as error:
        connection.send(failed(error))
    finally:
        connection.close()


def failed(error: BaseException) -> Finding:
    """Returns the finding of a section that ended with an error."""
    cause = " ".join(str(error).split())
    return Finding("ended with an error", type(error).__name__, False, cause[:600])


def findings(section: Section, device: Device, seconds: float) -> Iterator[Finding]:
    """Runs a section in a process of its own, for at most this many seconds, and yields its findings as they come."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=carry_out, args=(section, device, theirs))
    deadline = time.monotonic() + seconds
    process.start()
    theirs.close()
    try:
        while ours.poll(max(0.0, deadline - time.monotonic())):
            yield ours.recv()
        yield Finding("did not end in time", f"{seconds:.0f} s", False)
    except EOFError:
        process.join(10)
        if process.exitcode:
            yield Finding("process died", f"exit status {process.exitcode}", False)
    finally:
        end(process)


def end(process: multiprocessing.process.BaseProcess) -> None:
    """Ends a section's process and those that it started."""
    process.kill()  # it may not have its own group yet
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
