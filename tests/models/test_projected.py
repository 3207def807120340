"""MOON's projection head: its place, its output, and networks that it rejects."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.config.registry import call_with_options
from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.models.heads import projected
from rayfl.models.network import Network


def test_the_head_and_the_classifier_are_in_series() -> None:
    network = projected("lenet5", 10, (32, 32, 3), width=24, hidden=42)
    plain = models.resolve("lenet5")(10, (32, 32, 3))
    plain.load_state_dict({**plain.state_dict(), **{k: v for k, v in network.state_dict().items() if "fc3" not in k}})
    entered: list[torch.Tensor] = []
    plain.fc3.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    network.get_submodule(network.feature_layer).register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    x = torch.randn(3, 3, 32, 32)
    plain(x)
    logits = network(x)
    state = network.state_dict()
    hidden = functional.relu(functional.linear(entered[0], state["fc3.hidden.weight"], state["fc3.hidden.bias"]))
    features = functional.linear(hidden, state["fc3.projection.weight"], state["fc3.projection.bias"])
    assert hidden.shape == (3, 42)
    assert features.shape == (3, 24)
    assert torch.equal(entered[1], features)
    assert torch.equal(
        logits, functional.linear(features, state["fc3.classifier.weight"], state["fc3.classifier.bias"])
    )


def test_the_declaration_of_the_network_gets_the_head_in_the_place_of_its_last_layer() -> None:
    network = projected({"name": "resnet8", "width": 4}, 10, (32, 32, 3))
    head = ("fc.hidden", "fc.projection", "fc.classifier")
    assert network.ordered_modules == ("conv1", "bn1", "layer1.0", "layer2.0", "layer3.0", *head)
    assert network.groupings["blocks"] == (("conv1", "bn1", "layer1.0"), ("layer2.0",), ("layer3.0", *head))
    assert network.feature_layer == "fc.classifier"
    network.check_declaration()
    assert models.resolve("resnet8")().ordered_modules[-1] == "fc"


def test_the_hidden_layer_is_as_wide_as_what_enters_the_head_unless_said_otherwise() -> None:
    shapes = [
        [
            tuple(m.weight.shape)
            for m in projected("lenet5", 10, (32, 32, 3), hidden=hidden).modules()
            if isinstance(m, nn.Linear)
        ][2:]
        for hidden in (None, 42)
    ]
    assert shapes == [[(84, 84), (256, 84), (10, 256)], [(42, 84), (256, 42), (10, 256)]]


class ConvolutionalClassifier(Network):
    ordered_modules = ("classifier",)
    feature_layer = "classifier"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Conv2d(3, num_classes, 1)


class Undeclared(Network):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(3, num_classes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "model: needs network"),
        ({"network": "lenet"}, "unknown model 'lenet'; did you mean 'lenet5'"),
        ({"network": {"width": 32}}, r"model\.network: needs a name"),
        ({"network": {"name": "resnet8", "depth": 8}}, r"model\.network\.depth: not an option"),
        (
            {"network": f"{__name__}:ConvolutionalClassifier"},
            r"feature layer 'classifier' of '.*' is Conv2d; a projection head requires a torch\.nn\.Linear",
        ),
        ({"network": f"{__name__}:Undeclared"}, "model Undeclared: must declare ordered_modules and feature_layer"),
        (
            {"network": {"name": "torch.nn:Linear", "in_features": 3, "out_features": 10}},
            r"model\.network: 'torch\.nn:Linear' made a Linear, which declares no feature layer; derive",
        ),
    ],
)
def test_a_network_that_takes_no_head_is_rejected(options: dict[str, Any], message: str) -> None:
    known = {"num_classes": 10, "input_shape": (32, 32, 3)}
    with pytest.raises(ScenarioError, match=message):
        call_with_options(projected, options, known, "model")
