"""The Ray backend against the inline one: the same bits, wherever client updates run and whatever dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import Event, Waiting
from rayfl.errors import ClientError, ResourceError, ScenarioError
from rayfl.models.tensors import split
from tests.backends.ray.addresses import loopback
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts
from tests.engine.test_local_options import TABLES

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def run_on_ray(log: Path = Path(os.devnull), **changes: Any) -> tuple[np.ndarray, list[Event], list[dict[str, str]]]:
    with ray_session(prepared(**changes), None, RayLog(log)) as session:
        events = list(session.events())
        return split(session.committed()[1])[0], events, list(session.hosts)


def with_resources(**resources: Any) -> dict[str, Any]:
    return {"resources": {"relay": "spread", **resources}}


def test_every_option_of_local_training_gives_the_same_bits_with_a_packed_relay() -> None:
    expected, _ = run_on_hosts(prepared(**TABLES), 1)
    model, _, _ = run_on_ray(**TABLES, resources={"hosts": 2, "relay": "packed"})
    assert np.array_equal(model, expected)


def test_a_host_that_dies_in_a_client_update_is_restarted_with_the_same_bits(tmp_path: Path) -> None:
    schedules = ("relay", "parallel")
    phases = [
        {"name": name, "schedule": name, "rounds": 2, "cohort": 1.0, "local": {"batch_size": 16}} for name in schedules
    ]
    killed = {name: {"name": "tests.backends.ray.broken:Killed", "mark": str(tmp_path / name)} for name in schedules}
    dying = [phase | {"algorithm": killed[name]} for name, phase in zip(schedules, phases, strict=True)]
    model, _, _ = run_on_ray(phases=dying, **with_resources(hosts=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(schedules)
    expected, _ = run_on_hosts(prepared(phases=phases), 1)
    assert np.array_equal(model, expected)


def secure_samples() -> dict[str, Any]:
    return {"local": {"batch_size": 16, "dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "secure": True}}}


def secure_clients() -> dict[str, Any]:
    dp = {"level": "local", "noise_multiplier": 1.0, "clip_norm": 1.0, "secure": True, "delta": 0.01}
    return {"local": {"batch_size": 16}, "dp": dp}


@pytest.mark.parametrize(
    ("schedule", "secure"), [("relay", secure_samples), ("parallel", secure_clients)], ids=["relay", "parallel"]
)
def test_an_update_with_secure_noise_is_never_repeated(schedule: str, secure: Any, tmp_path: Path) -> None:
    """The mark makes a second attempt succeed; its noise would be new, and the account has one release."""
    killed = {"name": "tests.backends.ray.broken:Killed", "mark": str(tmp_path / "killed")}
    killed |= {"weighting": "uniform"} if schedule == "parallel" else {}
    phase = {"name": "p", "schedule": schedule, "rounds": 2, "cohort": 1.0, "algorithm": killed} | secure()
    with pytest.raises(
        ResourceError, match=r"worker \d died: .*with `secure` noise a repeated update .*`rayfl resume` continues"
    ):
        run_on_ray(phases=[phase], **with_resources(hosts=2, restarts=3))
    assert (tmp_path / "killed").exists()


def test_a_host_that_dies_too_often_ends_the_run_and_is_named_and_rays_text_is_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "ray.log"
    phase = {"name": "p", "rounds": 1, "cohort": {"explicit": [[5]]}, "algorithm": "tests.backends.ray.broken:Exiting"}
    with pytest.raises(ResourceError) as caught:
        run_on_ray(log, phases=[phase], **with_resources(hosts=1, restarts=0))
    assert str(caught.value) == (
        "while waiting for worker 0: clients 5, phase 'p', round 1: worker 0 died: its process was killed (perhaps "
        "because memory ran out), crashed in native code, or called os._exit; see ray.log; the run does not try again "
        "(resources.restarts is 0)"
    )
    assert "The actor died unexpectedly before finishing this task" in log.read_text()
    assert capfd.readouterr() == ("", "")


def test_a_client_whose_code_raises_in_a_relay_is_named_with_the_remote_traceback() -> None:
    phase = {"name": "fragile", "schedule": "relay", "rounds": 50, "cohort": {"explicit": [[1, 2], [5, 3]]}}
    phase |= {"algorithm": "tests.backends.ray.broken:Raising"}
    with pytest.raises(ClientError) as caught:
        run_on_ray(phases=[phase], **with_resources(hosts=2))
    assert (caught.value.client, caught.value.phase, caught.value.round) == (5, "fragile", 2)
    assert "KeyError: 'no such column'" in str(caught.value)
    assert "broken.py" in str(caught.value)


def test_the_watchdog_names_the_client_updates_that_are_awaited() -> None:
    phase = {"name": "p", "rounds": 1, "cohort": {"explicit": [[5]]}, "algorithm": "tests.backends.ray.broken:Slow"}
    _, events, _ = run_on_ray(phases=[phase], **with_resources(hosts=1, watchdog_s=0.5))
    waiting = [event for event in events if isinstance(event, Waiting)]
    assert waiting
    assert any("worker 0: clients 5" in what for what in waiting[0].outstanding)


def test_a_share_of_a_gpu_that_pytorch_cannot_see_is_said() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("PyTorch sees a GPU here")
    with pytest.raises(
        ResourceError,
        match=r"^worker 0 could not start on node 127\.0\.\d+\.2: .* sees no CUDA device.*resources.device=cpu$",
    ):
        run_on_ray(resources={"hosts": 1, "gpus_per_host": 0.5})


def test_a_users_module_that_a_node_does_not_have_is_named_before_any_text_of_rays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "only_here.py").write_text("from rayfl.algorithms.fedavg import FedAvg")
    monkeypatch.syspath_prepend(tmp_path)
    phase = FEDERATED | {"algorithm": "only_here:FedAvg"}
    with pytest.raises(ScenarioError) as caught:
        run_on_ray(tmp_path / "ray.log", phases=[phase], **with_resources(hosts=1))
    first, *_ = str(caught.value).splitlines()
    assert first.startswith(f"worker 0 could not start on node {loopback(2)}: cannot import 'only_here:FedAvg'")
    assert capfd.readouterr() == ("", "")
