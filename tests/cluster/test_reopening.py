"""A run that is left on Ray and resumed, there or on the other backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.report.records import read_rows
from tests.callbacks.scene import tables
from tests.lifecycle.scene import SCENE

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class LeftError(Exception):
    """The run was left on purpose."""


class Leaves(Callback):
    after: int

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == self.after:
            raise LeftError


def run(backend: Literal["ray", "inline"], hosts: int = 1, leaves: int | None = None, **how: Any) -> rayfl.Result:
    callbacks = [] if leaves is None else [Leaves(name="leaves", after=leaves)]
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 2}, "resources": {"hosts": hosts}}
    return rayfl.run(scenario, backend=backend, callbacks=callbacks, console=Console(quiet=True), **how)


@pytest.mark.slow
def test_a_run_is_resumed_on_other_hosts_and_on_the_other_backend_with_the_bits_of_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    undisturbed = run("inline", folder=tmp_path / "undisturbed")
    with pytest.raises(rayfl.RayflError, match="LeftError"):
        run("ray", 2, leaves=4, folder=tmp_path / "run")
    with pytest.raises(rayfl.RayflError, match="LeftError"):
        run("ray", 1, leaves=7, resume=tmp_path / "run")
    resumed = run("inline", resume=tmp_path / "run")
    assert all(torch.equal(resumed.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    assert rows(tmp_path / "run") == rows(tmp_path / "undisturbed")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_rows(folder)]
