"""Slow updates, slow hosts and hung updates on a cluster: only what makes no progress is given up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import Event, Recovering, RoundDone, Waiting
from rayfl.engine.watchdog import WARNINGS_AT_FIRST
from rayfl.models.tensors import split
from tests.engine.scenes import TINY, prepared, run_on_hosts

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def changes(cohort: int = 12, epochs: int = 1, **algorithm: Any) -> dict[str, Any]:
    phase = {"name": "p", "rounds": 3, "cohort": cohort, "local": {"epochs": epochs, "batch_size": 4}}
    return TINY | {"phases": [phase | {"algorithm": {"name": "tests.backends.ray.broken:Uneven"} | algorithm}]}


def run_on_ray(folder: Path, resources: dict[str, Any], **changes: Any) -> tuple[bytes, list[Event]]:
    run = prepared(**changes, resources=resources)
    with ray_session(run, None, RayLog(folder / "ray.log")) as session:
        events = list(session.events())
        return split(session.committed()[1])[0].tobytes(), events


def in_process(**changes: Any) -> bytes:
    return run_on_hosts(prepared(**changes), 1)[0].tobytes()


def test_a_slow_host_costs_less_than_its_share_and_shows_in_no_result(tmp_path: Path) -> None:
    slow = changes(folder=str(tmp_path), seconds=0.1, factor=10.0)
    model, events = run_on_ray(tmp_path, {"hosts": 2}, **slow)
    updates = Counter({path.name: len(path.read_text().splitlines()) for path in tmp_path.glob("updates-*")})
    assert updates.total() == 36
    assert updates[f"updates-{(tmp_path / 'first').read_text()}"] <= 3 * 4  # of six a round: it has two in hand
    seconds = [event.seconds for event in events if isinstance(event, RoundDone)]
    assert seconds[-1] - seconds[0] < 0.75 * 2 * 6.0  # its share would take six seconds a round
    assert model == in_process(**changes())


def test_a_hung_update_is_found_and_repeated(tmp_path: Path) -> None:
    model, events = run_on_ray(tmp_path, {"hosts": 2, "watchdog_s": 1}, **changes(folder=str(tmp_path), hangs=5))
    assert sum(isinstance(event, Recovering) for event in events) == 1
    assert any("5" in " ".join(event.outstanding) for event in events if isinstance(event, Waiting))
    assert model == in_process(**changes())


def test_a_first_round_may_take_longer_than_the_watchdog_waits_for_a_sign(tmp_path: Path) -> None:
    slow = changes(cohort=1, epochs=25) | {"model": "tests.backends.ray.broken:SlowNet"}
    watchdog_s = 0.2
    model, events = run_on_ray(tmp_path, {"hosts": 1, "watchdog_s": watchdog_s}, **slow)
    done = [event.seconds for event in events if isinstance(event, RoundDone)]
    assert done[0] > 9.0 > WARNINGS_AT_FIRST * watchdog_s
    assert not any(isinstance(event, Recovering) for event in events)
    assert model == in_process(**slow)
