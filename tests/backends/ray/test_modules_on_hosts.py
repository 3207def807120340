"""Hosts find modules beside a scenario on an existing cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayfl
from tests.test_user_modules import DATA, project, ran

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

SCHEDULE = """
from rayfl.schedules import BasePhase, Cohort, Schedule
from rayfl.engine.schedules.parallel import Parallel

class OwnPhase(BasePhase):
    cohort: Cohort
    laps: int = 1

class Own(Parallel):
    config = OwnPhase
"""


@pytest.mark.slow
def test_hosts_find_them_also_those_of_the_scenario_that_is_run_first_with_overrides(tmp_path: Path) -> None:
    project(tmp_path / "first", "beside_first")
    outer = '[start]\nscenario = "../first/own.toml"\noverrides = { data.name = "beside_outer:points" }\n'
    path = project(tmp_path / "outer", "beside_outer", outer)
    (tmp_path / "outer" / "beside_outer.py").write_text(
        DATA + "\nfrom rayfl.algorithms.fedavg import FedAvg\n\nclass Own(FedAvg):\n    pass\n"
    )
    override = 'algorithm = "beside_outer:Own", name = "p"'
    path.write_text(
        path.read_text()
        .replace('name = "p"', override)
        .replace("overrides = {", 'overrides = { phases.p.algorithm = "beside_outer:Own",')
    )
    on_ray = ran(path, tmp_path / "ray", backend="ray", overrides={"resources.hosts": 1})
    inline = ran(path, tmp_path / "inline")
    assert all((on_ray.state_dict[name] == inline.state_dict[name]).all() for name in inline.state_dict)


@pytest.mark.slow
def test_a_schedule_beside_the_scenario_whose_keys_are_of_a_class_of_its_own(tmp_path: Path) -> None:
    path = project(tmp_path / "own", "beside_schedule")
    (tmp_path / "own" / "beside_schedule.py").write_text(DATA + SCHEDULE)
    path.write_text(path.read_text().replace('name = "p"', 'name = "p", schedule = "beside_schedule:Own", laps = 2'))
    on_ray = ran(path, tmp_path / "ray", backend="ray", overrides={"resources.hosts": 1})
    inline = ran(path, tmp_path / "inline")
    assert all((on_ray.state_dict[name] == inline.state_dict[name]).all() for name in inline.state_dict)
    submitted = rayfl.submit(path, overrides={"resources.hosts": 1}, out=tmp_path / "submitted", starts=tmp_path)
    result = submitted.result()
    assert all((result.state_dict[name] == inline.state_dict[name]).all() for name in inline.state_dict)
