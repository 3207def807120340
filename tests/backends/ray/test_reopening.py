"""A run that is left on Ray and resumed, there or on the other backend."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.runs.archive import RunArchive
from tests.callbacks.scene import tables
from tests.runs.lifecycle.scene import SCENE
from tests.runs.lifecycle.test_secure_runs import SAMPLES, entries, of_samples
from tests.runs.lifecycle.test_secure_runs import tables as secure

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
    return [{key: value for key, value in row.items() if key != "seconds"} for row in RunArchive(folder).rows]


@pytest.mark.slow
def test_a_run_with_secure_noise_is_not_replayed_when_a_host_dies_but_resumed_and_charged_for_all_that_began(
    tmp_path: Path,
) -> None:
    """Client 5 kills its host in round 3, once; by then round 4 may have been submitted."""
    killed = {"name": "tests.backends.ray.broken:Killed", "mark": str(tmp_path / "killed")}
    cohorts = [[0, 1], [2, 3], [5, 2], [4, 5]]
    scenario = secure(SAMPLES, cohort={"explicit": cohorts}, rounds=4, resources={"hosts": 2, "restarts": 3})
    scenario["phases"][0]["algorithm"] = killed
    scenario["checkpoint"] = {"rounds": 1}
    folder, quiet = tmp_path / "run", Console(quiet=True)
    with pytest.raises(rayfl.RayflError, match=r"died: .* with `secure` noise .*`rayfl resume` continues after"):
        rayfl.run(scenario, backend="ray", folder=folder, console=quiet)
    begun = entries(folder)
    assert begun[:4] == [[0], 1, 2, 3]
    rayfl.run(resume=folder, backend="ray", console=quiet)
    (after,) = entries(folder)[len(begun)]
    assert entries(folder) == [*begun, [after], *range(after + 1, 5)]
    assert [row["round"] for row in RunArchive(folder).rows] == [1, 2, 3, 4]
    samples = json.loads((folder / "privacy.json").read_text())["samples"]
    assert samples["charged_but_discarded"]["rounds"] == [round for round in begun[1:] if round > after]
    charged = [round for round in entries(folder) if isinstance(round, int)]
    taken = Counter(client for round in charged for client in cohorts[round - 1])
    assert samples["epsilon"]["maximum"] == pytest.approx(of_samples(taken), rel=1e-6)
