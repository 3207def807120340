"""Residual networks, against torchvision's and against the layers written out."""

from functools import partial
from typing import Literal

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional

from rayfl.models.resnet import CIFARResNet, ResNet, ResNet8, ResNet18, ResNet20, ResNet34, ShortcutA


def with_random_normalisation(network: nn.Module) -> nn.Module:
    """`network` in evaluation mode, with no scale, shift or running statistic left at one or zero."""
    torch.manual_seed(0)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
                for tensor in module.state_dict().values():
                    if tensor.is_floating_point():
                        tensor.uniform_(0.5, 1.5)
    return network.eval()


def written_out(
    state: dict[str, torch.Tensor], x: torch.Tensor, blocks: int, shortcut: Literal["A", "B"], groups: int | None
) -> torch.Tensor:
    """The logits of a CIFAR ResNet in evaluation mode, from its state and torch.nn.functional alone."""

    def normalised(name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        if groups is not None:
            return functional.group_norm(x, groups, weight, bias)
        return functional.batch_norm(x, state[f"{name}.running_mean"], state[f"{name}.running_var"], weight, bias)

    def convolution(name: str, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
        weight = state[f"{name}.weight"]
        return functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = functional.relu(normalised("bn1", convolution("conv1", x)))
    for stage in (1, 2, 3):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = functional.relu(normalised(f"{name}.bn1", convolution(f"{name}.conv1", x, stride)))
            y = normalised(f"{name}.bn2", convolution(f"{name}.conv2", y))
            if stride == 2 and shortcut == "A":
                x = x[:, :, ::2, ::2]
                zeros = torch.zeros_like(x)[:, : x.shape[1] // 2]
                x = torch.cat([zeros, x, zeros], dim=1)
            elif stride == 2:
                x = normalised(f"{name}.downsample.1", convolution(f"{name}.downsample.0", x, stride))
            x = functional.relu(x + y)
    return functional.linear(x.mean(dim=(2, 3)), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize("groups", [None, 2, 4])
@pytest.mark.parametrize("shortcut", ["A", "B"])
@pytest.mark.parametrize(("kind", "blocks"), [(ResNet8, 1), (ResNet20, 3)])
def test_a_cifar_resnet_computes_what_its_layers_written_out_compute(
    kind: type[CIFARResNet], blocks: int, shortcut: Literal["A", "B"], groups: int | None
) -> None:
    network = with_random_normalisation(
        kind(10, shortcut=shortcut, norm="group" if groups else "batch", groups=groups or 2)
    )
    x = torch.randn(3, 3, 15, 14)
    torch.testing.assert_close(network(x), written_out(network.state_dict(), x, blocks, shortcut, groups))


def test_shortcut_a_gives_the_bits_of_slicing_and_padding_forward_and_back() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 7, 6, requires_grad=True)
    ours = ShortcutA()(x)
    sliced = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 3))
    assert torch.equal(ours, sliced)
    weight = torch.randn(ours.shape)
    (ours_back,) = torch.autograd.grad((ours * weight).sum(), x)
    (sliced_back,) = torch.autograd.grad((sliced * weight).sum(), x)
    assert torch.equal(ours_back, sliced_back)


def test_weights_of_a_cifar_resnet_begin_with_the_variance_of_he() -> None:
    torch.manual_seed(0)
    network = ResNet20(100, width=64)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            entering = module.weight[0].numel()
            assert module.weight.var().item() == pytest.approx(2 / entering, rel=0.1)


@pytest.mark.parametrize(("stem", "norm"), [("imagenet", "batch"), ("cifar", "group")])
@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        (ResNet18, torchvision.models.resnet18),
        pytest.param(ResNet34, torchvision.models.resnet34, marks=pytest.mark.slow),
    ],
)
def test_resnet_18_and_34_compute_what_torchvision_s_do(
    kind: type[ResNet], theirs: type[nn.Module], stem: Literal["imagenet", "cifar"], norm: Literal["batch", "group"]
) -> None:
    reference = theirs(num_classes=7, norm_layer=nn.BatchNorm2d if norm == "batch" else partial(nn.GroupNorm, 2))
    if stem == "cifar":
        reference.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        reference.maxpool = nn.Identity()
    with_random_normalisation(reference)
    network = kind(7, (32, 32, 3), stem=stem, norm=norm)
    network.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(network.eval()(x), reference(x))


@pytest.mark.parametrize(("stem", "size"), [("imagenet", 8), ("cifar", 32)])
def test_the_stem_decides_how_large_a_map_enters_the_first_stage(stem: Literal["imagenet", "cifar"], size: int) -> None:
    network = ResNet18(10, (32, 32, 3), stem=stem)
    entered: list[torch.Tensor] = []
    network.get_submodule("layer1").register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    network(torch.randn(1, 3, 32, 32).expand(2, -1, -1, -1))
    assert entered[0].shape == (2, 64, size, size)


def test_group_norm_keeps_no_statistics() -> None:
    with torch.device("meta"):
        assert [*ResNet8(norm="group").buffers()] == []
        assert [*ResNet18(10, norm="group").buffers()] == []
