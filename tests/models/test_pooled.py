"""Convolution, pooling and ReLU in one: the same values and gradients as in three, whichever way it is computed."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.nn import functional

from rayfl.models import pooled as module
from rayfl.models.pooled import pooled

NARROW = [((3, 32, 32), 6, 5), ((1, 28, 28), 6, 5), ((3, 9, 10), 8, 3), ((2, 5, 6), 1, 1), ((4, 11, 12), 7, (2, 5))]


@pytest.fixture
def wide_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrow arrangement is taken on any CPU."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def layers(channels: int, filters: int, kernel: int | tuple[int, int]) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(channels, filters, kernel, dtype=torch.float64).to(memory_format=torch.channels_last)


def images(shape: Sequence[int]) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(5, *shape, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()


@pytest.mark.usefixtures("wide_vectors")
@pytest.mark.parametrize(("shape", "filters", "kernel"), NARROW)
def test_a_narrow_convolution_in_pairs_of_columns_has_the_values_and_gradients_of_a_plain_one(
    shape: tuple[int, int, int], filters: int, kernel: int | tuple[int, int]
) -> None:
    conv, x = layers(shape[0], filters, kernel), images(shape)
    assert module._is_narrow(conv, x)
    found, expected = pooled(conv, x), functional.max_pool2d(functional.relu(conv(x)), 2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert found.is_contiguous(memory_format=torch.channels_last)
    weight, inputs = torch.randn_like(expected), (x, *conv.parameters())
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("wide_vectors")
@pytest.mark.parametrize(
    ("conv", "width"),
    [
        (nn.Conv2d(3, 9, 3), 8),
        (nn.Conv2d(3, 6, 3), 9),
        (nn.Conv2d(3, 6, 2), 8),
        (nn.Conv2d(3, 6, 3, padding=1), 8),
        (nn.Conv2d(3, 6, 3, padding="same"), 8),
        (nn.Conv2d(3, 6, 3, stride=2), 8),
        (nn.Conv2d(3, 6, 3, dilation=2), 8),
        (nn.Conv2d(3, 6, 3, groups=3), 8),
        (nn.Conv2d(3, 6, 3, bias=False), 8),
    ],
)
def test_other_convolutions_are_pytorchs_own(conv: nn.Conv2d, width: int) -> None:
    x = torch.randn(2, 3, 10, width)
    assert not module._is_narrow(conv, x)
    assert torch.equal(pooled(conv, x), functional.max_pool2d(functional.relu(conv(x)), 2))


@pytest.mark.usefixtures("wide_vectors")
def test_a_frozen_convolution_computes_no_gradient_of_its_own() -> None:
    conv, x = layers(3, 6, 5), images((3, 14, 14))
    conv.requires_grad_(False)
    pooled(conv, x).sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in conv.parameters())
    assert not pooled(conv, x.detach()).requires_grad


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
