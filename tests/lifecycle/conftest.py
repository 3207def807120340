from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest


class AtOnce:
    """Carries out what it is given before it returns; stands in for a ThreadPoolExecutor."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # whatever the thread would have kept
            future.set_exception(error)
        return future

    def shutdown(self) -> None:
        pass


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots and checkpoints are written in no threads, so that a test knows which of them are there."""
    monkeypatch.setattr("rayfl.engine.snapshot_writer.ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr("rayfl.checkpoint.checkpoint_writer.ThreadPoolExecutor", AtOnce)
