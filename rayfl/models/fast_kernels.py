"""Faster layers with the same results as PyTorch's, which replace them when a network is built."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

LANES = 16
"""float32 numbers in one vector of AVX-512."""


class NarrowConv2d(nn.Conv2d):
    """A convolution with few filters, which computes two neighbouring columns of its output at once.

    With 8 filters or fewer, PyTorch's kernel leaves at least half of an AVX-512 vector empty. Two neighbouring columns
    of a channels-last image are one column with twice the channels: the same memory, read differently. So each filter
    is used twice, once for each of the two columns of the output, with a column of zeros after or before it, which
    fills the vector at the cost of 1 / width more multiplications. Outputs equal PyTorch's; so do gradients, up to the
    order of summation.

    The backward pass to the input gains nothing, so this layer uses PyTorch's kernel if the input requires a gradient;
    also for images of odd width, and on devices other than the CPU.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [n, C, H, W] to [n, filters, H', W'], channels last; a single image as PyTorch does."""
        if x.ndim != 4 or x.requires_grad or x.shape[3] % 2 or x.device.type != "cpu":
            return super().forward(x)
        assert self.bias is not None
        filters = self.weight.permute(0, 2, 3, 1)
        left, right = (functional.pad(filters, (0, 0, *columns)) for columns in ((0, 1), (1, 0)))
        pairs = functional.conv2d(
            _join_columns(x.permute(0, 2, 3, 1)),
            _join_columns(torch.cat([left, right])),
            torch.cat([self.bias, self.bias]),
        )
        columns = pairs.permute(0, 2, 3, 1)
        return columns.reshape(*columns.shape[:2], -1, self.out_channels).permute(0, 3, 1, 2)


def use_fast_kernels(network: nn.Module) -> None:
    """Replaces layers in place for which this CPU has a faster kernel.

    Names, parameters, values and hooks stay. Only layers of exactly the type `torch.nn.Conv2d` are replaced: a subclass
    may compute something else.
    """
    for module in network.modules():
        if _is_narrow(module):
            # like torch.nn.utils.parametrize: all references to the layer, also outside the network, see the change
            module.__class__ = NarrowConv2d


def undo_fast_kernels(network: nn.Module) -> None:
    """Restores PyTorch's layers in place; names, parameters, values and hooks stay."""
    for module in network.modules():
        if isinstance(module, NarrowConv2d):
            module.__class__ = nn.Conv2d  # type: ignore[assignment]


def _is_narrow(module: nn.Module) -> bool:
    """Whether `NarrowConv2d` can compute the layer, faster than PyTorch."""
    return (
        type(module) is nn.Conv2d
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and 2 * module.out_channels <= LANES
        and module.kernel_size[1] >= 3
        and module.kernel_size[1] % 2 == 1
        and module.padding == (0, 0)
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and module.bias is not None
    )


def _join_columns(images: torch.Tensor) -> torch.Tensor:
    """[n, height, width, C] as [n, 2 C, height, width / 2], channels last: pairs of columns become one."""
    n, height, _, channels = images.shape
    return images.reshape(n, height, -1, 2 * channels).permute(0, 3, 1, 2)
