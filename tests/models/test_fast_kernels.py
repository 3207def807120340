"""Faster kernels: the same outputs and gradients, and no trace of them in names, parameters, hooks or forward."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from rayfl.models.cnn import LeNet5
from rayfl.models.fast_kernels import NarrowConv2d, use_fast_kernels

NARROW = [((3, 32, 32), 6, 5), ((1, 28, 28), 6, 5), ((3, 9, 10), 8, 3), ((2, 5, 6), 1, 3), ((4, 11, 12), 7, (2, 5))]


@pytest.fixture(autouse=True)
def wide_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the narrow kernel on any CPU."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def both(channels: int, filters: int, kernel: int | tuple[int, int]) -> tuple[nn.Conv2d, nn.Conv2d]:
    """A fast layer and the plain one with the same values."""
    torch.manual_seed(0)
    plain = nn.Conv2d(channels, filters, kernel, dtype=torch.float64).to(memory_format=torch.channels_last)
    fast = copy.deepcopy(plain)
    use_fast_kernels(fast)
    assert type(fast) is NarrowConv2d
    return fast, plain


def images(shape: Sequence[int]) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(5, *shape, dtype=torch.float64).to(memory_format=torch.channels_last)


def test_a_narrow_convolution_takes_a_single_image_and_vmap_as_a_plain_one() -> None:
    fast, plain = both(3, 6, 5)
    x = images((3, 32, 32))
    with torch.no_grad():
        expected = plain(x)
        torch.testing.assert_close(fast(x[0]), expected[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(torch.vmap(fast)(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "filters", "kernel"), NARROW)
@pytest.mark.parametrize("width_is_odd", [False, True])
@pytest.mark.parametrize("input_learns", [False, True])
def test_a_narrow_convolution_has_the_values_and_gradients_of_a_plain_one(
    shape: tuple[int, int, int],
    filters: int,
    kernel: int | tuple[int, int],
    width_is_odd: bool,
    input_learns: bool,
) -> None:
    fast, plain = both(shape[0], filters, kernel)
    x = images((*shape[:2], shape[2] + width_is_odd)).requires_grad_(input_learns)
    found, expected = fast(x), plain(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert found.is_contiguous(memory_format=torch.channels_last)
    weight = torch.randn_like(expected)
    inputs = [[x, *layer.parameters()] if input_learns else list(layer.parameters()) for layer in (fast, plain)]
    torch.testing.assert_close(
        torch.autograd.grad((found * weight).sum(), inputs[0]),
        torch.autograd.grad((expected * weight).sum(), inputs[1]),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 9, 3),
        nn.Conv2d(3, 6, 2),
        nn.Conv2d(3, 6, 1),
        nn.Conv2d(3, 6, 3, padding=1),
        nn.Conv2d(3, 6, 3, padding="same"),
        nn.Conv2d(3, 6, 3, stride=2),
        nn.Conv2d(3, 6, 3, dilation=2),
        nn.Conv2d(3, 6, 3, groups=3),
        nn.Conv2d(3, 6, 3, bias=False),
        type("Own", (nn.Conv2d,), {})(3, 6, 3),
    ],
)
def test_other_layers_are_left_alone(layer: nn.Module) -> None:
    kind = type(layer)
    use_fast_kernels(nn.Sequential(layer))
    assert type(layer) is kind


def test_without_wide_vectors_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    network = LeNet5()
    use_fast_kernels(network)
    assert type(network.conv1) is nn.Conv2d


def test_a_network_keeps_its_parameters_names_and_hooks() -> None:
    network = LeNet5()
    called: list[nn.Module] = []
    network.conv1.register_forward_hook(lambda layer, _, __: called.append(layer))
    before, first = dict(network.named_parameters()), network.conv1
    use_fast_kernels(network)
    assert network.conv1 is first
    assert isinstance(first, NarrowConv2d)
    after = dict(network.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is parameter for name, parameter in before.items())
    network(torch.randn(2, 3, 32, 32))
    assert called == [first]


def test_a_frozen_convolution_computes_no_gradient_of_its_own() -> None:
    layer, _ = both(3, 6, 5)
    layer.requires_grad_(False)
    assert not layer(images((3, 14, 14))).requires_grad
