"""A host's device and settings, as far as a machine without a GPU can tell."""

from __future__ import annotations

import os

import pytest
import torch

from rayfl.config.execution import Numerics, Resources
from rayfl.engine import device
from rayfl.engine.device import (
    CONTEXT_BYTES,
    choose_device,
    device_limits_explained,
    differing_hosts,
    memory_fraction,
    settings_restored,
)
from rayfl.engine.host import Host
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import ResourceError, ScenarioError
from rayfl.models.flat import FlatModel
from tests.engine.scenes import prepared

GIB = 2**30


@pytest.mark.parametrize("total", [12 * GIB, 80 * GIB])
@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_that_share_a_gpu_leave_room_for_their_contexts(hosts: int, total: int) -> None:
    allocated = memory_fraction(1 / hosts, total) * total
    assert hosts * (allocated + CONTEXT_BYTES) == pytest.approx(total)


def test_a_share_smaller_than_a_context_is_rejected() -> None:
    with pytest.raises(ResourceError, match=r"gpus_per_host=0.05 of a GPU with 8\.6 GB is less than the 0\.6 GB"):
        memory_fraction(0.05, 8 * GIB)


def settings() -> tuple[object, ...]:
    return (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        device.deterministic.fill_uninitialized_memory,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.get_num_threads(),
    )


@pytest.mark.parametrize(("deterministic", "tf32"), [(True, False), (False, True)])
def test_cuda_is_set_up_as_the_scenario_says_and_everything_is_restored(deterministic: bool, tf32: bool) -> None:
    before, state = settings(), torch.get_rng_state()
    with settings_restored(Resources()):
        device._set_numerics(Numerics(deterministic=deterministic, tf32=tf32))
        torch.set_num_threads(2)
        torch.rand(3)
        assert torch.backends.cudnn.deterministic == deterministic
        assert torch.are_deterministic_algorithms_enabled() == deterministic
        assert torch.backends.cudnn.allow_tf32 == tf32
        assert torch.backends.cuda.matmul.allow_tf32 == tf32
    assert settings() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_host_on_the_cpu_leaves_cudas_settings_alone() -> None:
    before = settings()
    assert choose_device(Resources(), Numerics()).type == "cpu"
    assert settings() == before


def test_a_run_on_the_cpu_does_not_ask_for_cuda_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("CUDA was started")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for name in ("device_count", "current_device", "_lazy_init", "get_rng_state"):
        monkeypatch.setattr(f"torch.cuda.{name}", asked)
    with settings_restored(Resources()):
        torch.rand(1)


def test_cuda_out_of_memory_is_told_as_a_matter_of_resources() -> None:
    with (
        pytest.raises(ResourceError, match=r"GPU ran out of memory \(CUDA out of memory\): use fewer workers per GPU"),
        device_limits_explained(),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_an_operation_without_a_deterministic_implementation_is_named_with_the_way_out() -> None:
    said = "bincount_cuda does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms"
    with (
        pytest.raises(ScenarioError, match=r"bincount_cuda is not deterministic.*numerics\.deterministic=false"),
        device_limits_explained(),
    ):
        raise RuntimeError(said)


def test_other_errors_of_a_client_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), device_limits_explained():
        raise RuntimeError("shapes do not match")


def test_a_client_is_not_blamed_when_the_device_runs_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepared()
    host = Host(0, job)

    def exhausted(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(FlatModel, "load", exhausted)
    with pytest.raises(ResourceError, match="GPU ran out of memory"):
        host.relay(RoundIndex(0, 1, 1), [3], job.result.initial.vector)
    with pytest.raises(ResourceError, match="GPU ran out of memory"):
        host.evaluate(RoundIndex(0, 1, 1), job.result.initial.vector, [])


def test_hosts_on_different_processors_are_named() -> None:
    hosts = [{"host": str(number), "processor": kind} for number, kind in enumerate(["AVX512", "AVX2", "AVX512"])]
    said = differing_hosts(hosts)
    assert said is not None
    assert "workers 0, 2: AVX512; worker 1: AVX2" in said
    assert differing_hosts([hosts[0], hosts[2]]) is None
