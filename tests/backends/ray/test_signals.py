"""Ray and the program's SIGTERM handler."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from rayfl.backends.ray.connection import attached


@pytest.fixture(autouse=True)
def handler_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def ray_that_only_sets_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "init", lambda **_: signal.signal(signal.SIGTERM, rays_own))


def rays_own(number: int, frame: Any) -> None:
    sys.exit(number)


def test_a_programs_own_sigterm_handler_outlives_the_start_of_ray() -> None:
    def mine(number: int, frame: Any) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) is mine


def test_a_program_that_ignores_sigterm_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_rays_handler_stays_where_the_program_has_none() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with attached(None):
        assert signal.getsignal(signal.SIGTERM) is rays_own
