"""Pooling before ReLU is pooling after ReLU."""

import torch
from torch.nn import functional

from rayfl.models.cnn import pooled


def test_pooling_before_relu_gives_the_bits_of_pooling_after_relu() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 12, 12).round(decimals=0).requires_grad_()  # rounded, for many ties and zeros
    weight = torch.randn(4, 3, 6, 6)
    before = pooled(x)
    (gradient_before,) = torch.autograd.grad((before * weight).sum(), x)
    after = functional.max_pool2d(functional.relu(x), 2)
    (gradient_after,) = torch.autograd.grad((after * weight).sum(), x)
    assert torch.equal(before, after)
    assert torch.equal(gradient_before, gradient_after)
