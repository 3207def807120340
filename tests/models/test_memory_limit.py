"""Networks that do not fit into the memory of the machine raise before they are initialised."""

from __future__ import annotations

import pytest
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models import construction as memory_limit
from rayfl.models.construction import build_module

GIVEN = {"num_classes": 10, "input_shape": (4,)}


def test_a_hidden_layer_of_a_billion_units_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 24 * 2**30)
    with pytest.raises(ScenarioError, match=r"model: [\d,]+ parameters take [\d,]+ GB .*; make 'weight' of Linear"):
        build_module("mlp", {"hidden": [1_000_000_000]}, GIVEN, "model")


def test_the_limit_counts_all_layers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    small = build_module("mlp", {"hidden": [8, 8]}, GIVEN, "model")
    needed = 4 * memory_limit.COPIES * sum(parameter.numel() for parameter in small.parameters())
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: needed)
    build_module("mlp", {"hidden": [8, 8]}, GIVEN, "model")
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: needed - 1)
    with pytest.raises(ScenarioError, match=r"model: 202 parameters"):
        build_module("mlp", {"hidden": [8, 8]}, GIVEN, "model")


def test_networks_built_elsewhere_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 1)
    assert nn.Linear(4, 4).weight.shape == (4, 4)
