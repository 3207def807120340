"""What all tests share: one thread, the same random examples every time, where real data is, and memory given back."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest
import torch

from rayfl.engine.memory import M_MMAP_THRESHOLD

WORTH_TRIMMING = 300 * 2**20
"""Bytes."""
_after_trim = [0]

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Tests interrupt themselves; a shell has what it starts in the background ignore that, and `nohup` a hangup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """What all tests share stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Bits depend on the number of threads, and tests run on machines with any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_import_path() -> Iterator[None]:
    """What a test makes importable is gone after it."""
    before = sys.path[:]
    yield
    sys.path[:] = before


@pytest.fixture(scope="session", autouse=True)
def freed_memory_returns() -> None:
    """What one test frees goes back to the system, instead of staying among what thousands of others hold."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**23)


@pytest.fixture(scope="module", autouse=True)
def trimmed() -> Iterator[None]:
    """What tests leave behind goes back to the system once it is much, since looking through all objects is slow."""
    yield
    if psutil.Process().memory_info().rss > _after_trim[0] + WORTH_TRIMMING:
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        _after_trim[0] = psutil.Process().memory_info().rss


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data that RAYFL_DATA names, one folder per data set in it."""
    named = os.environ.get("RAYFL_DATA")
    if not named:
        pytest.skip("RAYFL_DATA is not set: no real data here")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"RAYFL_DATA is '{named}', which is not a folder")
    return folder


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the curves takes longer than a small run, and is tested elsewhere."""
    monkeypatch.setattr("rayfl.report.curves.draw_curves", lambda *_: None)
