"""What all tests share: one thread, the same random examples every time, where real data is, and memory given back."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import psutil
import pytest
import torch

from rayfl.data.generated import digits
from rayfl.engine.memory import M_MMAP_THRESHOLD
from rayfl.runs.figures import curves

WORTH_TRIMMING = 300 * 2**20
"""Bytes."""
_after_trim = [0]

gc.disable()
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_configure() -> None:
    """Tests interrupt themselves; a shell has what it starts in the background ignore that, and `nohup` a hangup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Exempts what all tests share from garbage collection, and makes collections rarer: it saves time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Bits depend on the number of threads, and tests run on machines with any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def divergences_computed_once() -> Iterator[None]:
    """Most accounts of the tests have the same few noises and rates, of which Opacus computes every order anew."""
    accounting = sys.modules.get("opacus.accountants.analysis.rdp")
    with pytest.MonkeyPatch.context() as patch:
        if accounting is not None:
            patch.setattr(accounting, "_compute_rdp", lru_cache(2**16)(accounting._compute_rdp))
        yield


@pytest.fixture(scope="module")
def images_drawn_once() -> Iterator[None]:
    """A file's scenarios share their generated images, of at most three seeds or sizes in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "generate_coloured", lru_cache(3)(digits.generate_coloured))
        yield


@pytest.fixture(scope="module")
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A file's tests share a cache with no others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_import_path() -> Iterator[None]:
    """What a test makes importable is gone after it."""
    before = sys.path[:]
    yield
    sys.path[:] = before


@pytest.fixture(scope="module", autouse=True)
def left_as_found() -> Iterator[None]:
    """What a file's tests change for the whole process would change what the tests of later files see."""
    before = _shared()
    yield
    assert _shared() == before, "a test of this file changes this, and does not restore it"


def _shared() -> list[object]:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)]
    return [torch.get_deterministic_debug_mode(), torch.get_default_dtype(), torch.get_num_threads(), handlers]


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


@pytest.fixture(scope="session", autouse=True)
def draws_curves() -> Iterator[Callable[..., None]]:
    """Runs leave their curves out, which take longer to draw than a small run; yields what draws them."""
    with pytest.MonkeyPatch.context() as patch:
        drawing = curves.draw_curves
        patch.setattr(curves, "draw_curves", lambda *_: None)
        yield drawing


@pytest.fixture
def pictures(draws_curves: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw their curves."""
    monkeypatch.setattr(curves, "draw_curves", draws_curves)
