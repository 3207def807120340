"""A run on Ray at a URI: hosts and server write there, go on from there after a death, and so does another backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback
from tests.callbacks.scene import tables
from tests.cluster.test_deaths import Kills
from tests.cluster.test_reopening import Leaves, rows
from tests.lifecycle.scene import SCENE
from tests.object_store import object_store

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def run(backend: Any, *callbacks: Callback, **where: Any) -> rayfl.Result:
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 1}, "resources": {"hosts": 2}}
    return rayfl.run(scenario, backend=backend, callbacks=list(callbacks), console=Console(quiet=True), **where)


def test_hosts_share_no_file_system(tmp_path: Path) -> None:
    undisturbed = run("inline", folder=tmp_path / "undisturbed")
    (tmp_path / "store").mkdir()
    with object_store(tmp_path / "store") as store:
        uri, place = store.uri("run"), store.folder / "run"
        with pytest.raises(rayfl.RayflError, match="LeftError"):
            run("ray", Kills(name="kills", victims={5: "host"}), Leaves(name="leaves", after=8), folder=uri)
        assert list(place.glob("checkpoints/states/*/*.safetensors"))
        resumed = run("inline", resume=uri)
    assert all(torch.equal(resumed.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    assert rows(place) == rows(tmp_path / "undisturbed")
