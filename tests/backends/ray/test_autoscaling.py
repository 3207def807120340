"""Runs whose workers an autoscaler makes room for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import HostsChanged, RoundSettled
from rayfl.models.tensors import split
from tests.backends.ray.autoscaling import autoscaling_cluster
from tests.engine.scenes import TINY, prepared, run_on_hosts
from tests.service.test_submission import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_run_begins_on_the_first_node_that_an_autoscaler_adds_and_takes_more_with_the_bits_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.capacity.SETTLE_S", 0.0)
    phase = {"name": "p", "rounds": 6, "cohort": 5, "local": {"epochs": 1, "batch_size": 16}}
    scene: dict[str, Any] = TINY | {"phases": [phase], "resources": {"hosts": {"min": 1, "max": 3}}}
    told: list[str] = []
    changes: list[HostsChanged] = []

    def have_started(session: Any) -> bool:
        session._attempt.growth.look()
        return len(session._attempt.growth._handed) == 2

    settling = replace(prepared(**scene), settles=True)  # rounds wait for this program
    with autoscaling_cluster(tmp_path, allowed=1) as allowed:
        with ray_session(settling, None, RayLog(tmp_path / "ray.log"), told.append) as session:
            assert "has no room yet for 1 worker with 1 CPU" in told[0]
            assert len(session.hosts) == 1
            for event in session.events():
                if isinstance(event, HostsChanged):
                    changes.append(event)
                if isinstance(event, RoundSettled) and event.round == 2:
                    allowed.write_text("3")
                    until(lambda: have_started(session))
            model = split(session.committed()[1])[0]
            assert len({host["node"] for host in session.hosts}) == 3
        assert sum(node["Alive"] for node in ray.nodes()) == 4
    assert (changes[0].round, changes[0].before, changes[-1].hosts) == (2, 1, 3)
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)
