"""Training on a real GPU, on the inline backend; tests/pretend_cuda shows on any machine what needs none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from rayfl.config.execution import Resources
from rayfl.engine.device import settings_restored
from rayfl.engine.events import Evaluated
from rayfl.engine.exact_sum import ExactSum, combine
from tests.engine.scenes import defined, prepared, run_on_hosts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device here"),
]


@pytest.fixture(scope="module", autouse=True)
def restored() -> Iterator[None]:
    with settings_restored(Resources(device="cuda")):
        yield


ON_CUDA = {"device": "cuda", "relay": "spread"}


def test_a_scenario_trains_on_cuda_with_the_same_bits_on_any_number_of_hosts() -> None:
    job = prepared(resources=ON_CUDA)
    model, _ = run_on_hosts(job, 1)
    assert np.array_equal(model, run_on_hosts(job, 1)[0])
    assert np.array_equal(model, run_on_hosts(job, 3)[0])


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e30])
def test_sums_on_cuda_have_the_bits_of_those_on_the_cpu(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = [torch.randn(70_001, generator=generator) * scale for _ in range(4)]
    sums = []
    for device in ("cpu", "cuda"):
        total = ExactSum("delta", 32)
        for weight, vector in enumerate(vectors, start=1):
            total.add(vector.to(device), weight / 3)
        sums.append(combine("delta", [total.partial()] * 3, 32))
    assert np.array_equal(sums[0], sums[1])


def test_cuda_learns_what_the_cpu_learns() -> None:
    phase = {"name": "p", "rounds": 6, "cohort": 1.0, "local": {"epochs": 2, "batch_size": 16, "lr": 0.1}}
    data = {"name": "handwriting", "clients": 8}
    losses = []
    for device in ("cpu", "cuda"):
        job = prepared(data=data, phases=[phase], model={"name": "cnn_femnist"}, resources={"device": device})
        _, events = run_on_hosts(job, 2)
        losses.append([defined(event.scores["test_loss"]) for event in events if isinstance(event, Evaluated)])
    # without dropout, whose masks another kind of device draws otherwise, only rounding differs
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)
