"""Preparations that SIGKILL ends at every moment at which they touch their folder, each in a process of its own.

`python -m tests.data.prepared.killed FOLDER SOURCE` prints, as JSON, how many moments a preparation has and what went
wrong after a kill. A moment is a file that is opened, renamed or removed, or a record batch of a fragment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from rayfl.data import scenario_data as scenario_data  # before processes are forked, each of which would load it
from rayfl.data.prepared import manifest, writer
from rayfl.data.prepared.progress import PROGRESS
from rayfl.data.prepared.unwritten import Unwritten
from tests.data.prepared.scenes import data, prepared

TOUCHES = ("open", "os.rename", "os.remove")
DONE, FAILED = 0, 1
LEAST, MOST, MANY = 10, 40, 25
"""One after another, preparations are killed between these moments, so often."""


def in_another_process(source: str, folder: Path, dies_at: int | None, counted: Path | None = None) -> int:
    """Prepares a source; returns the exit status, or minus the signal that ended it."""
    if (child := os.fork()) == 0:
        status = FAILED
        try:
            moments = [0]

            def moment() -> None:
                if moments[0] == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                moments[0] += 1

            _call_at_moments(moment, folder)
            prepared(data(source), folder)
            if counted:
                counted.write_text(str(moments[0]))
            status = DONE
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _call_at_moments(moment: Callable[[], None], folder: Path) -> None:
    inside, blocks = str(folder), Unwritten._blocks

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in TOUCHES and isinstance(arguments[0], str | os.PathLike) and str(arguments[0]).startswith(inside):
            moment()

    def slowly(fragment: Unwritten) -> Iterator[list[Any]]:
        for block in blocks(fragment):
            yield block
            moment()

    sys.addaudithook(hook)
    Unwritten._blocks = slowly  # type: ignore[assignment, method-assign]


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def main(folder: Path, source: str) -> dict[str, Any]:
    writer.FRAGMENT_BYTES, writer.BLOCK_BYTES, manifest.CHUNK_BYTES = 8000, 2000, 256
    whole, it, counted = folder / "whole", folder / "it", folder / "moments"
    assert in_another_process(source, whole, None, counted) == DONE
    expected, moments, wrong = content(whole), int(counted.read_text()), list[str]()
    for number in range(moments):
        shutil.rmtree(it, ignore_errors=True)
        if in_another_process(source, it, number) != -signal.SIGKILL:
            wrong.append(f"moment {number}: was not killed")
        if (it / manifest.MANIFEST).exists() and set(expected) - {file.name for file in it.iterdir()}:
            wrong.append(f"moment {number}: left a manifest without its files")
        if in_another_process(source, it, None) != DONE:
            wrong.append(f"moment {number}: did not go on")
        if content(it) != expected:
            wrong.append(f"moment {number}: left other bytes")
    shutil.rmtree(it)
    random, kills = Random(0), 0
    while in_another_process(source, it, random.randrange(LEAST, MOST)) == -signal.SIGKILL and kills < MANY:
        kills += 1
    if (it / PROGRESS).exists():
        in_another_process(source, it, None)
    if content(it) != expected:
        wrong.append(f"{kills} kills one after another: left other bytes")
    return {"moments": moments, "kills": kills, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
