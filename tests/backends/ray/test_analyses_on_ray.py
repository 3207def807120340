"""Analyses spread over a cluster find what they find in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.analysis.scene import analysed, finished
from tests.studies.grid import test_analyses as of_grid

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.slow
def test_results_are_the_same_on_ray(tmp_path: Path) -> None:
    run = finished(tmp_path)
    for name, options in (("variance", {"weights": 5, "rounds": [3, 4, 5]}), ("gains", {"rounds": [4, 6]})):
        inline = analysed(name, run, out=tmp_path / "inline", **options)
        assert analysed(name, run, out=tmp_path / "ray", backend="ray", **options) == inline


@pytest.mark.slow
def test_a_grid_analyses_its_runs_on_ray(tmp_path: Path) -> None:
    changes = {"analyses": [{"name": "gains", "rounds": [3]}]}
    inline, on_ray = (
        of_grid.run(tmp_path / backend, backend=backend, changes=changes) for backend in ("inline", "ray")
    )
    assert of_grid.rows(on_ray, "gains") == of_grid.rows(inline, "gains")
