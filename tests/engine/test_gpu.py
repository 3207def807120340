"""Training on CUDA, on the inline backend: these tests need no Ray."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayfl.engine.events import Evaluated
from tests.engine.scenes import prepared, run_on_hosts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device here"),
]

ON_CUDA = {"device": "cuda", "relay": "spread"}


def test_a_scenario_trains_on_cuda_with_the_same_bits_on_any_number_of_hosts() -> None:
    job = prepared(resources=ON_CUDA)
    model, _ = run_on_hosts(job, 1)
    assert np.array_equal(model, run_on_hosts(job, 1)[0])
    assert np.array_equal(model, run_on_hosts(job, 3)[0])


def test_cuda_learns_what_the_cpu_learns() -> None:
    phase = {"name": "p", "rounds": 6, "cohort": 1.0, "local": {"epochs": 2, "batch_size": 16, "lr": 0.1}}
    data = {"name": "handwriting", "clients": 8}
    losses = []
    for device in ("cpu", "cuda"):
        job = prepared(data=data, phases=[phase], model={"name": "cnn_femnist"}, resources={"device": device})
        _, events = run_on_hosts(job, 2)
        losses.append([event.loss for event in events if isinstance(event, Evaluated)])
    # without dropout, whose masks another kind of device draws otherwise, only rounding differs
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)
