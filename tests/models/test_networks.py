"""The papers' networks: published parameter counts, shapes, declarations, dropout."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.models.cnn_fashion_mnist import CNNFashionMNIST
from rayfl.models.network import Network
from rayfl.registry import call_with_options


def build(name: str, num_classes: int, input_shape: Sequence[int], **options: Any) -> Network:
    known = {"num_classes": num_classes, "input_shape": input_shape}
    network = call_with_options(models.resolve(name), options, known, "model")
    assert isinstance(network, Network)
    return network


PUBLISHED = [
    ("lenet5", 10, (32, 32, 3), {}, 62_006),
    ("cnn_femnist", 62, (28, 28, 1), {}, 246_590),
    ("cnn_femnist", 62, (28, 28, 1), {"hidden": 2048}, 6_603_710),
    ("cnn_fashion_mnist", 10, (28, 28, 1), {}, 21_840),
    ("cnn_fashion_mnist_large", 10, (28, 28, 1), {}, 1_199_882),
    ("cnn_fashion_mnist_large", 62, (28, 28, 1), {}, 1_206_590),
]


@pytest.mark.parametrize(("name", "classes", "shape", "options", "count"), PUBLISHED)
def test_parameter_count_is_the_published_one(
    name: str, classes: int, shape: tuple[int, int, int], options: dict[str, Any], count: int
) -> None:
    assert sum(p.numel() for p in build(name, classes, shape, **options).parameters()) == count


ANY_SIZE = [
    *[(name, classes, shape, options) for name, classes, shape, options, _ in PUBLISHED],
    ("lenet5", 10, (28, 28, 1), {}),
    ("lenet5", 3, (16, 37, 2), {}),
    ("cnn_femnist", 5, (33, 30, 3), {"widths": [4, 8]}),
    ("cnn_fashion_mnist", 10, (32, 32, 3), {}),
    ("cnn_fashion_mnist_large", 10, (6, 7, 1), {}),
]


@pytest.mark.parametrize(("name", "classes", "shape", "options"), ANY_SIZE)
def test_images_of_any_size_that_fits_become_logits(
    name: str, classes: int, shape: tuple[int, int, int], options: dict[str, Any]
) -> None:
    height, width, channels = shape
    assert build(name, classes, shape, **options)(torch.randn(2, channels, height, width)).shape == (2, classes)


@pytest.mark.parametrize(("name", "classes", "shape", "options"), ANY_SIZE)
def test_declared_modules_hold_all_parameters_in_order_and_the_feature_layer_returns_the_logits(
    name: str, classes: int, shape: tuple[int, int, int], options: dict[str, Any]
) -> None:
    network = build(name, classes, shape, **options).eval()
    network.check_declaration()
    prefixes = [parameter.rpartition(".")[0] for parameter, _ in network.named_parameters()]
    assert tuple(dict.fromkeys(prefixes)) == network.ordered_modules
    seen: list[torch.Tensor] = []
    network.get_submodule(network.feature_layer).register_forward_hook(lambda _, __, output: seen.append(output))
    height, width, channels = shape
    logits = network(torch.randn(2, channels, height, width))
    assert torch.equal(seen[0], logits)


@pytest.mark.parametrize(
    ("name", "shape", "smallest"),
    [
        ("lenet5", (15, 32, 3), 16),
        ("cnn_femnist", (28, 3, 1), 4),
        ("cnn_fashion_mnist", (12, 12, 1), 16),
        ("cnn_fashion_mnist_large", (5, 28, 1), 6),
        ("lenet5", (784,), 16),
    ],
)
def test_images_that_are_too_small_are_refused_with_the_smallest_size(
    name: str, shape: tuple[int, ...], smallest: int
) -> None:
    with pytest.raises(ScenarioError, match=f"model '{name}': takes images .* at least {smallest} x {smallest} pixels"):
        build(name, 10, shape)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn_femnist", {"hidden": 0}, r"model\.hidden: must be greater than 0 \(got 0\)"),
        ("cnn_femnist", {"widths": [32]}, r"model\.widths\.1: is missing"),
        ("cnn_femnist", {"widths": [32, 1.5]}, r"model\.widths\.1: must be a valid integer.* \(got 1\.5\)"),
        ("cnn_fashion_mnist", {"dropout": 1}, r"model\.dropout: must be less than 1 \(got 1\)"),
        ("lenet5", {"hidden": 3}, r"model\.hidden: not an option of 'model'"),
    ],
)
def test_a_bad_option_is_refused_by_its_key(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        build(name, 10, (28, 28, 1), **options)


@pytest.mark.parametrize("name", ["cnn_fashion_mnist", "cnn_fashion_mnist_large"])
def test_dropout_acts_in_training_mode_only(name: str) -> None:
    network = build(name, 10, (28, 28, 1))
    x = torch.randn(4, 1, 28, 28)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


def test_convolutional_dropout_of_the_small_fashion_mnist_network_drops_whole_channels() -> None:
    network = CNNFashionMNIST()
    with torch.no_grad():
        network.conv2.weight.zero_()
        network.get_parameter("conv2.bias").add_(1)  # every channel that is kept stays above zero
    entered: list[torch.Tensor] = []
    network.fc1.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    network(torch.randn(8, 1, 28, 28))
    channels = entered[0].view(8, 20, 16)
    dropped = (channels == 0).any(2)
    assert torch.equal(dropped, (channels == 0).all(2))
    assert 0 < dropped.float().mean() < 1


def test_pooling_before_relu_gives_the_bits_of_pooling_after_relu() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 12, 12).round(decimals=0).requires_grad_()  # rounded, for many ties and zeros
    weight = torch.randn(4, 3, 6, 6)
    before = functional.relu(functional.max_pool2d(x, 2))
    (gradient_before,) = torch.autograd.grad((before * weight).sum(), x)
    after = functional.max_pool2d(functional.relu(x), 2)
    (gradient_after,) = torch.autograd.grad((after * weight).sum(), x)
    assert torch.equal(before, after)
    assert torch.equal(gradient_before, gradient_after)


class Disordered(Network):
    ordered_modules = ("first", "second")
    feature_layer = "second"

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(2, 2)
        self.first = nn.Linear(2, 2)


def test_layers_created_out_of_their_declared_order_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"Disordered: .* order first\.weight.* in the order second\.weight"):
        Disordered().check_declaration()


def test_a_declared_module_that_does_not_exist_is_refused_by_name() -> None:
    network = Disordered()
    network.feature_layer = "third"
    with pytest.raises(ScenarioError, match="declares 'third', which is not one of its submodules"):
        network.check_declaration()


def test_a_network_that_declares_nothing_is_refused() -> None:
    with pytest.raises(ScenarioError, match="must declare ordered_modules and feature_layer"):
        Network().check_declaration()
