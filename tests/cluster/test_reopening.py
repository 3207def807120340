"""A run on Ray that is left and reopened, there or on the other backend."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rayfl.cluster.ray_log import RayLog
from rayfl.cluster.ray_session import ray_session
from rayfl.engine.inline import inline_session
from rayfl.engine.job import Job, Session
from rayfl.engine.state_store import FolderStore
from rayfl.lifecycle.run import read_state
from tests.lifecycle.scene import Leaving, LeftError, followed, prepared

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def on_ray(job: Job) -> AbstractContextManager[Session]:
    return ray_session(job, None, RayLog(Path(os.devnull)))


@pytest.mark.slow
def test_a_run_goes_on_from_a_snapshot_on_ray_and_inline_as_if_it_had_not_been_left(tmp_path: Path) -> None:
    job, model = prepared(resources={"hosts": 2})
    undisturbed = followed(tmp_path / "undisturbed", job, model, inline_session).left()
    store = FolderStore(tmp_path / "states")
    first, second = Leaving(4, 4, 5, store), Leaving(6, 6, 6, store)
    with pytest.raises(LeftError):
        followed(tmp_path / "run", job, model, on_ray, first)
    state = read_state(tmp_path / "run")
    with pytest.raises(LeftError):
        followed(tmp_path / "run", job, model, on_ray, second, state, first.snapshot)
    state = read_state(tmp_path / "run")
    again = followed(tmp_path / "run", job, model, inline_session, state=state, snapshot=second.snapshot)
    assert again.left() == undisturbed
