"""A convolution, its 2x2 max pooling and its ReLU, arranged for speed."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

LANES = 16
"""float32 numbers in one vector of AVX-512."""


def pooled(conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    """relu(max_pool2d(conv(x), 2)), whatever the order in which it is computed.

    Max pooling commutes with ReLU, values and gradients to the bit; this way ReLU sees a quarter of the values.
    """
    if _is_narrow(conv, x):
        pool = functional.max_pool2d(_convolved_in_pairs(conv, x), 2)
        return functional.relu(pool.permute(0, 2, 3, 1)[..., : conv.out_channels]).permute(0, 3, 1, 2)
    return functional.relu(functional.max_pool2d(conv(x), 2))


def _is_narrow(conv: nn.Conv2d, x: torch.Tensor) -> bool:
    """Whether the convolution would leave half of a CPU's vector empty, and is one that `_convolved_in_pairs` does."""
    return (
        x.device.type == "cpu"
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and 2 * conv.out_channels <= LANES
        and x.shape[3] % 2 == 0
        and conv.kernel_size[1] % 2 == 1
        and conv.padding == (0, 0)
        and conv.stride == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.bias is not None
    )


def _convolved_in_pairs(conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    """conv(x) with channels of zeros after its own, eight in all: [n, 8, height, width], channels last.

    Two neighbouring columns of a channels-last image are one column of twice the channels: the same memory seen
    otherwise. So each filter is there twice, once for each of a pair's columns in the output, with a column of
    zeros after or before it. That fills a vector, for a fifth more multiplications with kernels of width 5, and
    eight channels are what PyTorch's max pooling is fast with. Values are those of conv(x); gradients are, but for
    the order in which they are summed.
    """
    assert conv.bias is not None
    filters, spare = conv.weight.permute(0, 2, 3, 1), LANES // 2 - conv.out_channels
    bias = functional.pad(conv.bias, (0, spare))
    left, right = (functional.pad(filters, (0, 0, *columns, 0, 0, 0, spare)) for columns in ((0, 1), (1, 0)))
    both = torch.cat([left, right])
    both = both.reshape(*both.shape[:2], -1, 2 * conv.in_channels)
    images = x.permute(0, 2, 3, 1)
    images = images.reshape(*images.shape[:2], -1, 2 * conv.in_channels)
    pairs = functional.conv2d(images.permute(0, 3, 1, 2), both.permute(0, 3, 1, 2), torch.cat([bias, bias]))
    columns = pairs.permute(0, 2, 3, 1)
    return columns.reshape(*columns.shape[:2], -1, LANES // 2).permute(0, 3, 1, 2)
