"""A head for networks whose class declares none: `model.feature_layer`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.construction import build_module
from rayfl.runs.resolution import resolve
from tests.algorithms.scene import CLASSES, INPUTS, PLAIN, prepared
from tests.engine.scenes import run_on_hosts

PLAIN_NET = f"{__name__}:Undeclared"


class Undeclared(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS, 6), nn.Tanh())
        self.fc = nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.body(x))
        return logits


class WithParameter(Undeclared):
    def __init__(self, num_classes: int, feature_layer: str) -> None:
        super().__init__(num_classes)
        self.named = feature_layer


@pytest.mark.parametrize("algorithm", ["moon", "fedbabu", "fedper", "feddecorr"])
def test_algorithms_that_need_a_head_run_with_the_one_that_the_scenario_names(algorithm: str) -> None:
    job, _ = prepared(algorithm, PLAIN, model={"name": PLAIN_NET, "feature_layer": "fc"})
    models = [run_on_hosts(job, hosts)[0] for hosts in (1, 2)]
    assert (models[0] == models[1]).all()
    assert job.scenario.model.options == {"feature_layer": "fc"}
    assert resolve(job.scenario).model == job.scenario.model


@pytest.mark.parametrize(
    ("algorithm", "phase"), [("moon", {}), ("fedbabu", {}), ("fedper", {}), ("fedavg", {"train": "head"})]
)
def test_without_one_the_remedy_is_in_the_message(algorithm: str, phase: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError) as error:
        prepared(algorithm, PLAIN, phase, model=PLAIN_NET)
    assert "model Undeclared does not declare its head; name that layer in `model` (" in str(error.value)
    assert "(feature_layer = 'fc', its last one?)" in str(error.value)


def test_a_constructor_with_a_parameter_of_that_name_gets_it() -> None:
    options = {"feature_layer": "mine"}
    network = build_module(f"{__name__}:WithParameter", options, {"num_classes": CLASSES}, "model")
    assert isinstance(network, WithParameter)
    assert (network.named, hasattr(network, "feature_layer")) == ("mine", False)


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (
            {"name": PLAIN_NET, "feature_layer": "fcc"},
            r"model.feature_layer: model Undeclared has no layer with parameters called 'fcc'; did you mean 'fc'",
        ),
        (
            {"name": "mlp", "hidden": [4], "feature_layer": "layers.0"},
            r"model.feature_layer: model MLP declares '.*' itself; leave it out",
        ),
        ({"name": PLAIN_NET, "feature_layer": 3}, r"has no layer with parameters called '3'"),
    ],
)
def test_bad_input_is_named(model: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared("fedavg", PLAIN, model=model)
