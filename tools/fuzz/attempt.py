"""Feeds one damaged input to a reader."""

from __future__ import annotations

import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Literal, NamedTuple

from rayfl.errors import RayflError
from tools.fuzz.mutations import mutated
from tools.fuzz.targets import Target

SECONDS = 20.0
"""A reader that takes longer counts as hanging."""

Kind = Literal["read", "rejected", "failed"]


class Outcome(NamedTuple):
    """The outcome of an attempt.

    Attributes:
        kind: `read`, `rejected` with a rayfl error that names the file, or `failed`.
        detail: The text of the error, or the traceback of a failure.
        damaged: The files that were damaged.
    """

    kind: Kind
    detail: str
    damaged: tuple[str, ...]


class _TooSlowError(BaseException):
    pass


def attempt(target: Target, valid: Path, folder: Path, random: Random) -> Outcome:
    """Damages one or two files of a target and reads them.

    Args:
        target: The reader.
        valid: The folder with its valid files.
        folder: Folder for their copies, which must not exist.
        random: Source of randomness.
    """
    shutil.copytree(valid, folder)
    files = sorted(file for file in folder.glob(target.damaged) if file.is_file())
    contents = [file.read_bytes() for file in files]
    chosen = random.sample(files, min(len(files), random.choice((1, 1, 1, 2))))
    for file in chosen:
        file.write_bytes(mutated(file, file.read_bytes(), random, contents))
    damaged = tuple(str(file.relative_to(folder)) for file in chosen)
    try:
        with warnings.catch_warnings(), _in_time():
            warnings.simplefilter("ignore")
            target.read(folder)
    except RayflError as error:
        return Outcome(*_judged(error, target, folder, [file.name for file in files]), damaged)
    except (Exception, _TooSlowError):
        return Outcome("failed", traceback.format_exc(), damaged)
    return Outcome("read", "", damaged)


def write_valid(target: Target, folder: Path) -> None:
    """Writes the valid files of a target, and checks that they can be read.

    Raises:
        AssertionError: There are none.
    """
    folder.mkdir()
    target.write(folder)
    assert any(file.is_file() for file in folder.glob(target.damaged)), "there is nothing to damage"
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        target.read(Path(copy))


def _judged(error: RayflError, target: Target, folder: Path, names: list[str]) -> tuple[Kind, str]:
    said = str(error)
    if "Traceback (most recent call last)" in said:
        return "failed", f"shows a traceback: {said}"
    if target.names_file and not any(name in said for name in (str(folder), *target.also_named, *names)):
        return "failed", f"names no file: {said}"
    return "rejected", said


@contextmanager
def _in_time() -> Iterator[None]:
    def end(signal: int, frame: FrameType | None) -> None:
        raise _TooSlowError(f"it takes more than {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
