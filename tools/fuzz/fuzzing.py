"""Feeds many damaged inputs to one reader, in separate processes with limited memory."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

from tools.fuzz.attempt import SECONDS, Outcome, attempt, write_valid
from tools.fuzz.targets import TARGETS

MEMORY = 2**30
"""Bytes that reading an input may take; files have a few kB."""

ADDRESSES = 2**34
"""Limit on the address space of a process, so that no reader brings the machine down."""

_PROCESSES = multiprocessing.get_context("fork")  # importing takes longer than thousands of inputs


class Failure(NamedTuple):
    """An input that was neither read nor rejected: its number, and what happened."""

    number: int
    detail: str


def fuzz(
    name: str, seed: int, first: int, inputs: int, seconds: float, keep: Path
) -> tuple[Counter[str], list[Failure]]:
    """Feeds inputs to one reader in another process, which is replaced when it crashes or hangs.

    Args:
        name: Name of the reader.
        seed: Seed of the damage.
        first: Number of the first input.
        inputs: Number of inputs.
        seconds: Time limit for all of them; the rest is skipped.
        keep: Folder for inputs that failed.

    Returns:
        How many inputs were read, rejected and failed, and the failures.
    """
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    number, last = first, first + inputs
    with tempfile.TemporaryDirectory(prefix="rayfl-fuzz-") as folder:
        valid = Path(folder) / "valid"
        torch.set_num_threads(1)  # the threads of a pool do not survive a fork
        write_valid(TARGETS[name], valid)
        until = time.monotonic() + seconds
        while number < last and time.monotonic() < until:
            here, there = _PROCESSES.Pipe(duplex=False)
            arguments = (name, seed, number, last, valid, Path(folder) / f"input-{number}", there)
            process = _PROCESSES.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()
            while number < last and time.monotonic() < until:
                try:
                    outcome: Outcome | None = here.recv() if here.poll(60 + 3 * SECONDS) else None
                except EOFError:
                    outcome = None
                if outcome is None:
                    process.join(1)
                    outcome = Outcome("failed", f"its process hung or died (exit status {process.exitcode})", ())
                counts[outcome.kind] += 1
                if outcome.kind == "failed":
                    failures.append(Failure(number, outcome.detail))
                    _keep(name, seed, number, valid, keep, outcome)
                number += 1
                if not process.is_alive() and not here.poll():
                    break
            process.kill()
            process.join()
    return counts, failures


def _work(name: str, seed: int, first: int, last: int, valid: Path, folder: Path, told: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    before = _peak()
    for number in range(first, last):
        outcome = attempt(TARGETS[name], valid, folder, _random(name, seed, number))
        if (peak := _peak()) > before + MEMORY:
            outcome, before = outcome._replace(kind="failed", detail=f"took {peak - before} bytes"), peak
        told.send(outcome)
        shutil.rmtree(folder, ignore_errors=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _random(name: str, seed: int, number: int) -> Random:
    return Random(f"{seed} {name} {number}")


def _keep(name: str, seed: int, number: int, valid: Path, keep: Path, outcome: Outcome) -> None:
    """Recreates a failed input and stores it with a description of the failure."""
    folder = keep / f"{name.replace(' ', '_')}-{seed}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    attempt(TARGETS[name]._replace(read=lambda _: None), valid, folder, _random(name, seed, number))
    (folder / "FAILURE.txt").write_text(f"{', '.join(outcome.damaged)}\n{outcome.detail}")
