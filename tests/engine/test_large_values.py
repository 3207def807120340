"""Features without scaling: their running statistics are far larger than weights are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from rayfl.data.dataset import Dataset
from rayfl.models.network import Network
from tests.algorithms.scene import INPUTS, SIZES, Setting, people, prepared
from tests.engine.scenes import run_on_hosts

SCALE = 1e6


def unscaled_features() -> np.ndarray:
    return np.asarray(people().train.x) * np.float32(SCALE)


def unscaled_people() -> Dataset:
    data = people()
    return replace(data, train=replace(data.train, x=unscaled_features()))


class NormFirst(Network):
    ordered_modules = ("norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(INPUTS)
        self.read_out = nn.Linear(INPUTS, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(self.norm(x))
        return logits


def test_running_statistics_of_unscaled_features_are_averaged_on_any_number_of_hosts() -> None:
    everybody = tuple(range(len(SIZES)))
    setting = Setting((everybody,), rounds=1, local={"epochs": 1, "batch_size": "full", "lr": 0.1})
    tables = {"data": {"name": f"{__name__}:unscaled_people"}, "model": {"name": f"{__name__}:NormFirst"}}
    job, model = prepared("fedavg", setting, **tables)
    vector, _ = run_on_hosts(job, 1)
    for hosts in (2, 5):
        assert np.array_equal(vector, run_on_hosts(job, hosts)[0])

    # one step each: 0.9 of the initial 1, and 0.1 of the client's own variance
    x = np.split(unscaled_features().astype(np.float64), np.cumsum(SIZES)[:-1])
    variances = [0.9 + 0.1 * part.var(axis=0, ddof=1) for part in x]
    assert min(size * variance.min() for size, variance in zip(SIZES, variances, strict=True)) > 1e9
    found = model.state_dict(torch.from_numpy(vector))["norm.running_var"]
    np.testing.assert_allclose(found, np.average(variances, axis=0, weights=SIZES), rtol=1e-6)
