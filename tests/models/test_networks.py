"""Networks of the papers: published parameter counts, shapes, declarations, groupings, dropout."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from rayfl.config.registry import call_with_options
from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.models.cnn import CNNFashionMNIST
from rayfl.models.fast_kernels import use_fast_kernels
from rayfl.models.network import Network
from rayfl.models.text import CharLSTM


def build(name: str, num_classes: int, input_shape: Sequence[int], **options: Any) -> Network:
    known = {"num_classes": num_classes, "input_shape": input_shape}
    network = call_with_options(models.resolve(name), options, known, "model")
    assert isinstance(network, Network)
    return network


def batch_for(network: Network, num_classes: int, shape: Sequence[int]) -> torch.Tensor:
    """Two random inputs as a network receives them: texts unchanged, images with channels first."""
    if isinstance(network, CharLSTM):
        return torch.randint(num_classes, (2, *shape))
    return torch.randn(2, *shape[-1:], *shape[:-1])


PUBLISHED = [
    ("lenet5", 10, (32, 32, 3), {}, 62_006),
    ("cnn_femnist", 62, (28, 28, 1), {}, 246_590),
    ("cnn_femnist", 62, (28, 28, 1), {"hidden": 2048}, 6_603_710),
    ("cnn_fashion_mnist", 10, (28, 28, 1), {}, 21_840),
    ("cnn_fashion_mnist_large", 10, (28, 28, 1), {}, 1_199_882),
    ("cnn_fashion_mnist_large", 62, (28, 28, 1), {}, 1_206_590),
    ("mlp", 10, (28, 28, 1), {}, 199_210),
    ("mlp", 10, (28, 28, 1), {"hidden": [100, 100]}, 89_610),
    ("cnn_feddyn", 10, (32, 32, 3), {}, 797_962),
    ("cnn_feddyn", 100, (32, 32, 3), {}, 815_332),
    ("cnn_feddyn", 10, (32, 32, 3), {"widths": [32, 64]}, 744_330),
    ("cnn_feddyn", 100, (32, 32, 3), {"widths": [32, 64]}, 761_700),
    ("cnn_fedbug_tiny", 200, (64, 64, 3), {}, 530_888),
    ("cnn_fedbabu", 10, (32, 32, 3), {}, 115_658),
    ("resnet8", 10, (32, 32, 3), {}, 75_290),
    ("resnet8", 20, (32, 32, 3), {}, 75_940),
    ("resnet8", 100, (32, 32, 3), {}, 81_140),
    ("resnet8", 10, (32, 32, 3), {"shortcut": "B"}, 78_042),
    ("resnet8", 20, (32, 32, 3), {"shortcut": "B"}, 78_692),
    ("resnet8", 100, (32, 32, 3), {"shortcut": "B"}, 83_892),
    ("resnet8", 10, (32, 32, 3), {"shortcut": "B", "width": 32}, 308_650),
    ("resnet8", 20, (32, 32, 3), {"shortcut": "B", "width": 32}, 309_940),
    ("resnet8", 100, (32, 32, 3), {"shortcut": "B", "width": 32}, 320_260),
    ("resnet8", 10, (32, 32, 3), {"shortcut": "B", "width": 64}, 1_227_594),
    ("resnet8", 20, (32, 32, 3), {"shortcut": "B", "width": 64}, 1_230_164),
    ("resnet8", 100, (32, 32, 3), {"shortcut": "B", "width": 64}, 1_250_724),
    ("resnet20", 10, (32, 32, 3), {}, 269_722),
    ("resnet20", 100, (32, 32, 3), {}, 275_572),
    ("resnet32", 10, (32, 32, 3), {}, 464_154),
    ("resnet32", 100, (32, 32, 3), {}, 470_004),
    ("resnet44", 10, (32, 32, 3), {}, 658_586),
    ("resnet44", 100, (32, 32, 3), {}, 664_436),
    ("resnet56", 10, (32, 32, 3), {}, 853_018),
    ("resnet56", 100, (32, 32, 3), {}, 858_868),
    ("resnet18", 10, (64, 64, 3), {}, 11_181_642),
    ("resnet18", 20, (64, 64, 3), {}, 11_186_772),
    ("resnet18", 100, (64, 64, 3), {}, 11_227_812),
    ("resnet18", 200, (64, 64, 3), {}, 11_279_112),
    ("resnet18", 1000, (64, 64, 3), {}, 11_689_512),
    ("resnet18", 10, (32, 32, 3), {"stem": "cifar"}, 11_173_962),
    ("resnet18", 20, (32, 32, 3), {"stem": "cifar"}, 11_179_092),
    ("resnet18", 100, (32, 32, 3), {"stem": "cifar", "norm": "group"}, 11_220_132),
    ("resnet18", 200, (32, 32, 3), {"stem": "cifar"}, 11_271_432),
    ("resnet18", 1000, (32, 32, 3), {"stem": "cifar"}, 11_681_832),
    ("resnet34", 10, (64, 64, 3), {}, 21_289_802),
    ("resnet34", 20, (64, 64, 3), {}, 21_294_932),
    ("resnet34", 100, (64, 64, 3), {"norm": "group"}, 21_335_972),
    ("resnet34", 200, (64, 64, 3), {}, 21_387_272),
    ("resnet34", 1000, (64, 64, 3), {}, 21_797_672),
    ("resnet34", 10, (32, 32, 3), {"stem": "cifar"}, 21_282_122),
    ("resnet34", 20, (32, 32, 3), {"stem": "cifar"}, 21_287_252),
    ("resnet34", 100, (32, 32, 3), {"stem": "cifar"}, 21_328_292),
    ("resnet34", 200, (32, 32, 3), {"stem": "cifar"}, 21_379_592),
    ("resnet34", 1000, (32, 32, 3), {"stem": "cifar"}, 21_789_992),
    ("mobilenet_v2", 1000, (224, 224, 3), {}, 3_504_872),
    ("deeplab_v3_plus", 19, (768, 768, 3), {}, 5_225_203),
    ("char_lstm", 80, (80,), {}, 819_920),
    ("char_lstm", 80, (80,), {"biases": 1}, 817_872),
    ("char_lstm", 80, (80,), {"layers": 1}, 293_584),
    ("char_lstm", 80, (80,), {"hidden": 100}, 133_520),
    ("projected", 10, (32, 32, 3), {"network": "lenet5"}, 92_626),
]


@pytest.mark.parametrize(("name", "classes", "shape", "options", "count"), PUBLISHED)
def test_as_many_parameters_are_trained_as_published(
    name: str, classes: int, shape: tuple[int, ...], options: dict[str, Any], count: int
) -> None:
    with torch.device("meta"):
        network = build(name, classes, shape, **options)
    assert sum(p.numel() for p in network.parameters() if p.requires_grad) == count


ANY_SIZE: list[tuple[str, int, tuple[int, ...], dict[str, Any]]] = [
    ("lenet5", 10, (32, 32, 3), {}),
    ("lenet5", 10, (28, 28, 1), {}),
    ("lenet5", 3, (16, 37, 2), {}),
    ("cnn_femnist", 62, (28, 28, 1), {}),
    ("cnn_femnist", 62, (28, 28, 1), {"hidden": 2048}),
    ("cnn_femnist", 5, (33, 30, 3), {"widths": [4, 8]}),
    ("cnn_fashion_mnist", 10, (28, 28, 1), {}),
    ("cnn_fashion_mnist", 10, (32, 32, 3), {}),
    ("cnn_fashion_mnist_large", 10, (28, 28, 1), {}),
    ("cnn_fashion_mnist_large", 10, (6, 7, 1), {}),
    ("mlp", 10, (28, 28, 1), {}),
    ("mlp", 4, (7,), {"hidden": []}),
    ("cnn_feddyn", 10, (32, 32, 3), {}),
    ("cnn_feddyn", 7, (16, 40, 1), {"widths": [3, 5]}),
    ("cnn_fedbug_tiny", 200, (64, 64, 3), {}),
    ("cnn_fedbug_tiny", 5, (36, 50, 1), {}),
    ("cnn_fedbabu", 10, (32, 32, 3), {}),
    ("cnn_fedbabu", 5, (16, 33, 1), {}),
    ("resnet8", 100, (32, 32, 3), {}),
    ("resnet8", 10, (4, 5, 1), {"shortcut": "B", "width": 3}),
    ("resnet8", 10, (9, 7, 3), {"norm": "group", "width": 9, "groups": 3}),
    ("resnet20", 10, (32, 32, 3), {"width": 32}),
    ("resnet56", 10, (8, 8, 3), {}),
    ("resnet18", 10, (64, 64, 3), {}),
    ("resnet18", 10, (17, 28, 1), {"norm": "group"}),
    ("resnet18", 10, (5, 6, 3), {"stem": "cifar", "norm": "group", "groups": 32}),
    ("resnet34", 10, (32, 32, 3), {}),
    ("char_lstm", 80, (80,), {}),
    ("char_lstm", 5, (7,), {"layers": 3, "hidden": 6, "embedding": 4, "biases": 1}),
    ("projected", 10, (32, 32, 3), {"network": "lenet5"}),
    ("projected", 10, (32, 32, 3), {"network": {"name": "resnet8", "norm": "group"}, "width": 64, "hidden": 32}),
    ("projected", 80, (80,), {"network": "char_lstm"}),
    ("projected", 4, (7,), {"network": "mlp"}),
]


def quick_but(deep: set[str], cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The cases, of which those of these networks are slow."""
    return [pytest.param(*case, marks=[pytest.mark.slow] if case[0] in deep else []) for case in cases]


@pytest.mark.parametrize(
    ("name", "classes", "shape", "options"), quick_but({"resnet56", "resnet18", "resnet34"}, ANY_SIZE)
)
def test_inputs_of_any_size_that_fits_become_logits_of_a_declared_feature_layer(
    name: str, classes: int, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    network = build(name, classes, shape, **options)
    network.check_declaration()
    assert network(batch_for(network, classes, shape)).shape == (2, classes)
    network.eval()
    seen: list[torch.Tensor] = []
    network.get_submodule(network.feature_layer).register_forward_hook(lambda _, __, output: seen.append(output))
    logits = network(batch_for(network, classes, shape))
    assert torch.equal(seen[0], logits)


SMALL: dict[str, tuple[int, tuple[int, ...], dict[str, Any]]] = {
    "lenet5": (10, (32, 32, 3), {}),
    "mlp": (10, (28, 28, 1), {}),
    "cnn_femnist": (62, (28, 28, 1), {"hidden": 32}),
    "cnn_fashion_mnist": (10, (28, 28, 1), {}),
    "cnn_fashion_mnist_large": (10, (28, 28, 1), {}),
    "cnn_feddyn": (10, (32, 32, 3), {"widths": [3, 5]}),
    "cnn_fedbug_tiny": (5, (36, 50, 1), {}),
    "cnn_fedbabu": (10, (32, 32, 3), {}),
    "resnet8": (10, (32, 32, 3), {"shortcut": "B"}),
    "resnet20": (10, (16, 16, 3), {}),
    "resnet32": (10, (16, 16, 3), {}),
    "resnet44": (10, (16, 16, 3), {}),
    "resnet56": (10, (16, 16, 3), {}),
    "resnet18": (10, (32, 32, 3), {}),
    "resnet34": (10, (32, 32, 3), {}),
    "char_lstm": (80, (80,), {"hidden": 16}),
    "projected": (10, (32, 32, 3), {"network": "lenet5"}),
    "mobilenet_v2": (5, (64, 64, 3), {}),
    "deeplab_v3_plus": (5, (48, 64, 3), {}),
    "siamese": (5, (32, 32, 3), {"network": "lenet5", "width": 16, "predictor": 8}),
}
"""Registered networks, with their number of classes, the shape of their inputs and their options."""

OF_OTHER_INPUTS_OR_WITH_COPIES = ("distilbert", "momentum_contrast", "orchestra")
"""The other networks, with separate tests of their layers."""


def test_no_registered_network_is_missing_here() -> None:
    assert sorted([*SMALL, *OF_OTHER_INPUTS_OR_WITH_COPIES]) == sorted(models)


DEEP = {"resnet32", "resnet44", "resnet56", "resnet34"}
"""Of the same layers as shallower ones."""


@pytest.mark.parametrize("name", quick_but(DEEP, ((name,) for name in SMALL)))
def test_every_layer_with_parameters_is_called_as_a_module(name: str) -> None:
    classes, shape, options = SMALL[name]
    network = build(name, classes, shape, **options)
    layers = {path: module for path, module in network.named_modules() if list(module.parameters(recurse=False))}
    called: set[str] = set()
    for path, module in layers.items():
        module.register_forward_hook(lambda *_, path=path: called.add(path))
    network(batch_for(network, classes, shape))
    assert called == set(layers)


@pytest.mark.parametrize("name", quick_but(DEEP, ((name,) for name in SMALL)))
def test_fast_kernels_change_neither_names_nor_initial_values_nor_outputs(name: str) -> None:
    classes, shape, options = SMALL[name]
    torch.manual_seed(0)
    plain = build(name, classes, shape, **options).eval()
    torch.manual_seed(0)
    fast = build(name, classes, shape, **options).eval()
    use_fast_kernels(fast)
    assert list(fast.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(fast.state_dict(), plain.state_dict(), rtol=0, atol=0)
    x = batch_for(plain, classes, shape)
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-6, atol=1e-6)


RESNETS = [
    ("resnet8", [1, 1, 1]),
    ("resnet20", [3, 3, 3]),
    ("resnet56", [9, 9, 9]),
    ("resnet18", [2, 2, 2, 2]),
    ("resnet34", [3, 4, 6, 3]),
]


@pytest.mark.parametrize(("name", "blocks"), RESNETS)
def test_residual_networks_thaw_by_stage_or_by_block_with_stem_and_classifier_at_the_ends(
    name: str, blocks: list[int]
) -> None:
    with torch.device("meta"):
        network = build(name, 10, (32, 32, 3))
    stages, units = network.groupings["stages"], network.groupings["blocks"]
    assert [len(stage) for stage in stages] == [2 + blocks[0], *blocks[1:-1], blocks[-1] + 1]
    assert [len(unit) for unit in units] == [3, *[1] * (sum(blocks) - 2), 2]
    assert tuple(sum(stages, ())) == tuple(sum(units, ())) == network.ordered_modules
    assert network.ordered_modules[:3] == ("conv1", "bn1", "layer1.0")
    assert stages[-1][0] == f"layer{len(blocks)}.0"
    assert stages[-1][-1] == units[-1][-1] == "fc"


def test_the_code_of_fedbug_thaws_the_third_convolution_with_the_first() -> None:
    network = build("cnn_fedbug_tiny", 200, (64, 64, 3))
    assert network.groupings == {"code": (("conv1", "conv3"), ("conv2",), ("fc1",), ("fc2",), ("fc3",))}
    assert network.ordered_modules == ("conv1", "conv2", "conv3", "fc1", "fc2", "fc3")


@pytest.mark.parametrize(
    ("name", "shape", "smallest"),
    [
        ("lenet5", (15, 32, 3), 16),
        ("cnn_femnist", (28, 3, 1), 4),
        ("cnn_fashion_mnist", (12, 12, 1), 16),
        ("cnn_fashion_mnist_large", (5, 28, 1), 6),
        ("lenet5", (784,), 16),
        ("cnn_feddyn", (32, 15, 3), 16),
        ("cnn_fedbug_tiny", (35, 64, 3), 36),
        ("cnn_fedbabu", (15, 32, 3), 16),
        ("resnet8", (3, 32, 3), 4),
        ("resnet18", (16, 32, 3), 17),
    ],
)
def test_images_that_are_too_small_are_rejected_with_the_smallest_size(
    name: str, shape: tuple[int, ...], smallest: int
) -> None:
    with pytest.raises(ScenarioError, match=f"model '{name}': takes images .* at least {smallest} x {smallest} pixels"):
        build(name, 10, shape)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet8", {"norm": "group", "groups": 3}, "model 'resnet8': groups = 3 does not divide its 16 channels"),
        ("resnet34", {"norm": "group", "groups": 3}, "model 'resnet34': groups = 3 does not divide its 64 channels"),
        ("char_lstm", {}, r"model 'char_lstm': takes texts \(length,\), the data has inputs of shape \(28, 28, 1\)"),
    ],
)
def test_a_bad_option_is_rejected_by_its_key(name: str, options: dict[str, Any], message: str) -> None:
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


class Disordered(Network):
    ordered_modules = ("first", "second")
    feature_layer = "second"

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(2, 2)
        self.first = nn.Linear(2, 2)


def test_layers_created_out_of_their_declared_order_are_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"Disordered: .* order first\.weight.* in the order second\.weight"):
        Disordered().check_declaration()


def test_a_declared_module_that_does_not_exist_is_rejected_by_name() -> None:
    network = Disordered()
    network.feature_layer = "third"
    with pytest.raises(ScenarioError, match="declares 'third', which is not one of its submodules"):
        network.check_declaration()


def test_a_network_that_declares_nothing_is_rejected() -> None:
    with pytest.raises(ScenarioError, match="must declare ordered_modules and feature_layer"):
        Network().check_declaration()
