"""Actors that runs share, without a cluster."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from rich.console import Console

import rayfl
from rayfl.backends.ray.actors import Actors, KeptActors
from rayfl.backends.ray.user_code import UserCode
from rayfl.errors import ScenarioError
from tests.callbacks.scene import PLAIN, model_of, same, tables
from tests.engine.scenes import prepared


def test_the_next_run_has_begun_on_all_actors_before_they_are_asked_for_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that was asked earlier trained the model of this run in the network of the run before."""
    waited = list[str]()
    monkeypatch.setattr(ray, "wait", lambda refs, num_returns: waited.extend(refs[:num_returns]))
    monkeypatch.setattr("rayfl.backends.ray.actors._sent", lambda run: (None, None, []))
    monkeypatch.setattr("rayfl.backends.ray.actors.nodes_of", lambda places: [])
    actors = object.__new__(Actors)
    server, *hosts, scheduler = (_Called(name) for name in ("server", "host 0", "host 1", "scheduler"))
    vars(actors).update(server=server, hosts=hosts, scheduler=scheduler, newcomers=[], _places=[])
    actors.open(SimpleNamespace())  # type: ignore[arg-type]
    assert waited == ["host 0: open", "host 1: open", "scheduler: open"]


class _Called:
    def __init__(self, name: str) -> None:
        self._name = name

    def call(self, method: str, *arguments: Any) -> str:
        return f"{self._name}: {method}"


def test_inline_sessions_need_no_ray(tmp_path: Path) -> None:
    with rayfl.Session(backend="inline", out=tmp_path, console=Console(quiet=True)) as session:
        first, second = session.run(tables(phases=[PLAIN])), session.run(tables(phases=[PLAIN]))
    assert same(model_of(first), model_of(second))
    assert first.directory != second.directory
    with pytest.raises(ScenarioError, match="backend: 'dask' is neither 'ray' nor 'inline'"):
        rayfl.Session(backend="dask")  # type: ignore[arg-type]


def test_trials_of_one_process_share_workers_with_no_other() -> None:
    from rayfl.backends.ray.kept_cluster import cluster_of_trials

    assert "ray.tune" not in sys.modules or cluster_of_trials() is None


@pytest.fixture
def edited_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The digest, by name, of a module whose file has been edited since."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_mine.py").write_text("size = 2")
    return {"edited_mine": hashlib.sha256(b"size = 1").hexdigest()}


def test_workers_that_would_import_an_edited_module_are_not_started(
    edited_module: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.actors.reserved", lambda *_: pytest.fail("workers were started"))
    run = replace(prepared(), worker_code={**edited_module, "torch": "torch 2"})
    with pytest.raises(ScenarioError, match=r"^edited_mine: was edited after this program had imported it, so that w"):
        KeptActors().take(run)


def test_a_worker_that_starts_later_does_not_import_an_edited_module(
    edited_module: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = UserCode.of(prepared().scenario, {**edited_module, "torch": "torch 2"})
    with pytest.raises(ScenarioError, match=r"^edited_mine: was edited .*, or is another file on this node"):
        code.make_importable()
    monkeypatch.setitem(sys.modules, "edited_mine", sys)  # as a worker that has imported it as it was
    code.make_importable()
