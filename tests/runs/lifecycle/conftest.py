from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import rayfl
from tests.runs.lifecycle.scene import run_scene


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
    monkeypatch.setattr("rayfl.engine.state.state_store.ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr("rayfl.runs.checkpoint_writer.ThreadPoolExecutor", AtOnce)


@pytest.fixture(scope="module", autouse=True)
def _neither_synced_nor_by_the_clock() -> Iterator[None]:
    """No machine loses its power here, and to sync would take most of the time.

    On a busy machine a round may take a second, after which status.json would be written between two rounds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayfl.files._sync", lambda path: None)
        patch.setattr("rayfl.runs.status.WRITTEN_EVERY_S", float("inf"))
        yield


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> rayfl.Result:
    """SCENE from its first round to its last."""
    return run_scene(tmp_path_factory.mktemp("undisturbed") / "run")
