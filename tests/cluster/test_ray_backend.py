"""The Ray backend against the inline one: the same bits, wherever visits run and whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.cluster.session import ray_session
from rayfl.engine.events import Evaluated, Event, RoundDone, Waiting
from rayfl.errors import ClientError, ResourceError
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts, without_clock

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def run_on_ray(**changes: Any) -> tuple[np.ndarray, list[Event], list[dict[str, str]]]:
    with ray_session(prepared(**changes), None) as session:
        events = list(session.events())
        return session.model(), events, list(session.hosts)


def with_resources(**resources: Any) -> dict[str, Any]:
    return {"resources": {"relay": "spread", **resources}}


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_bits_and_metrics_are_those_of_the_inline_backend(hosts: int) -> None:
    expected, expected_events = run_on_hosts(prepared(), 1)
    model, events, described = run_on_ray(**with_resources(hosts=hosts))
    assert len(described) == hosts
    assert np.array_equal(model, expected)
    for kind in (RoundDone, Evaluated):
        mine = without_clock([event for event in events if isinstance(event, kind)])
        assert mine == without_clock([event for event in expected_events if isinstance(event, kind)])


def test_a_packed_relay_gives_the_same_bits() -> None:
    expected, _ = run_on_hosts(prepared(), 1)
    model, _, _ = run_on_ray(resources={"hosts": 2, "relay": "packed"})
    assert np.array_equal(model, expected)


def test_client_states_stay_with_their_hosts() -> None:
    phase = FEDERATED | {"algorithm": "tests.engine.test_same_bits:Drifting"}
    expected, _ = run_on_hosts(prepared(phases=[phase]), 1)
    model, _, _ = run_on_ray(phases=[phase], **with_resources(hosts=3))
    assert np.array_equal(model, expected)


@pytest.mark.parametrize("schedule", ["relay", "parallel"])
def test_a_host_that_dies_in_a_visit_is_restarted_and_the_bits_are_the_same(schedule: str, tmp_path: Path) -> None:
    killed = {"name": "tests.cluster.broken:Killed", "mark": str(tmp_path / "killed")}
    phase = {"name": "p", "schedule": schedule, "rounds": 2, "cohort": 1.0, "local": {"batch_size": 16}}
    model, _, _ = run_on_ray(phases=[phase | {"algorithm": killed}], **with_resources(hosts=2))
    assert (tmp_path / "killed").exists()
    expected, _ = run_on_hosts(prepared(phases=[phase]), 1)
    assert np.array_equal(model, expected)


def test_a_host_that_dies_too_often_ends_the_run_and_is_named(tmp_path: Path) -> None:
    killed = {"name": "tests.cluster.broken:Killed", "mark": str(tmp_path / "missing" / "never")}
    phase = {"name": "p", "rounds": 1, "cohort": {"given": [[5]]}, "algorithm": killed}
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing").chmod(0o500)
    with pytest.raises(ResourceError, match="host 0 died"):
        run_on_ray(phases=[phase], **with_resources(hosts=1, restarts=0))


@pytest.mark.parametrize("schedule", ["relay", "parallel"])
def test_a_client_whose_code_raises_is_named_with_the_remote_traceback(schedule: str) -> None:
    phase = {"name": "fragile", "schedule": schedule, "rounds": 50, "cohort": {"given": [[1, 2], [5, 3]]}}
    phase |= {"algorithm": "tests.cluster.broken:Raising"}
    with pytest.raises(ClientError) as caught:
        run_on_ray(phases=[phase], **with_resources(hosts=2))
    assert (caught.value.client, caught.value.phase, caught.value.round) == (5, "fragile", 2)
    assert "KeyError: 'no such column'" in str(caught.value)
    assert "broken.py" in str(caught.value)


def test_the_watchdog_names_the_visits_that_are_awaited() -> None:
    phase = {"name": "p", "rounds": 1, "cohort": {"given": [[5]]}, "algorithm": "tests.cluster.broken:Slow"}
    _, events, _ = run_on_ray(phases=[phase], **with_resources(hosts=1, patience_s=0.5))
    waiting = [event for event in events if isinstance(event, Waiting)]
    assert waiting
    assert any("host 0: clients 5" in what for what in waiting[0].outstanding)


def test_hosts_share_a_gpu_by_fractions_of_it() -> None:
    _, _, described = run_on_ray(
        phases=[PRETRAIN], resources={"hosts": 2, "gpus_per_host": 0.5, "cpus_per_host": 0.5, "device": "cpu"}
    )
    assert [host["device"] for host in described] == ["cpu", "cpu"]


def test_more_fractions_than_there_are_do_not_fit() -> None:
    with pytest.raises(ResourceError, match=r"3 hosts with 0.5 CPU, 0.5 GPU each do not fit .* that fits is 2"):
        run_on_ray(resources={"hosts": 3, "gpus_per_host": 0.5, "cpus_per_host": 0.5, "device": "cpu"})


def test_a_share_of_a_gpu_that_pytorch_cannot_see_is_said() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("PyTorch sees a GPU here")
    with pytest.raises(
        ResourceError, match=r"host 0 could not start[\s\S]*sees no CUDA device[\s\S]*resources.device=cpu"
    ):
        run_on_ray(resources={"hosts": 1, "gpus_per_host": 0.5})


def test_another_address_than_the_one_the_program_is_connected_to_is_refused() -> None:
    with (
        pytest.raises(ResourceError, match=r"is connected to the Ray cluster at .*, not to 127\.0\.0\.9:6379"),
        ray_session(prepared(), "127.0.0.9:6379"),
    ):
        pass
