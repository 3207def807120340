"""Residual networks: torchvision's ResNet-18 and -34, and those of three stages for small images.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional
from torchvision.models import resnet
from torchvision.models.resnet import BasicBlock

from rayfl.errors import ScenarioError
from rayfl.models.network import Network, image_shape

Norm = Literal["batch", "group"]


def norm_layer(model: str, norm: Norm, groups: int, narrowest: int) -> Callable[[int], nn.Module]:
    """Chooses the normalisation of a network.

    Args:
        model: The name of the model, for messages.
        norm: Batch norm or group norm.
        groups: Number of groups of a group norm.
        narrowest: Smallest number of channels in the network; the others are multiples of it.

    Returns:
        A function that makes a layer for a number of channels.

    Raises:
        ScenarioError: The groups do not divide the channels.
    """
    if norm == "batch":
        return nn.BatchNorm2d
    if narrowest % groups:
        raise ScenarioError(f"model '{model}': groups = {groups} does not divide its {narrowest} channels evenly")
    return partial(nn.GroupNorm, groups)


def declare(network: Network, blocks_per_stage: Sequence[int]) -> None:
    """Sets the declaration of a network with torchvision's names: `conv1`, `bn1`, blocks `layer1.0` and so on, `fc`.

    The two groupings "stages" and "blocks" are FedBug's "Module" and "Block". In both, the stem thaws together with the
    first unit and the classifier with the last one.
    """
    stages = [
        tuple(f"layer{stage}.{block}" for block in range(blocks)) for stage, blocks in enumerate(blocks_per_stage, 1)
    ]
    blocks = [(block,) for stage in stages for block in stage]
    network.groupings = {"stages": _with_ends(stages), "blocks": _with_ends(blocks)}
    network.ordered_modules = tuple(chain.from_iterable(network.groupings["blocks"]))
    network.feature_layer = "fc"


def _with_ends(units: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    first, *others = units
    *before, last = [("conv1", "bn1", *first), *others]
    return (*before, (*last, "fc"))


class ResNet(Network, resnet.ResNet):  # type: ignore[misc]
    """A stem, four stages of basic blocks (64, 128, 256, 512 channels), global average pooling, a classifier.

    Names, initialisation and forward pass are torchvision's, so its weights fit the default stem and norm.

    From He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. The code of FedExP ends with a 3x3
    average pooling, which reads only one corner of the final 4 x 4 map of a CIFAR image; here the pooling reads all of
    it.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).
        stem: "imagenet" is a 7x7 convolution with stride 2 and 3x3 max pooling with stride 2 (FedBug, FPS), "cifar" a
            single 3x3 convolution with stride 1 (FedExP, FedDecorr, MOON).
        norm: Normalisation after every convolution.
        groups: Number of groups of a group norm (two: FedDyn, FedBug, FedExP).

    Raises:
        ScenarioError: The images are smaller than 17 x 17 (stem "cifar": 5 x 5), which leaves one pixel for the last
            stride; or the groups do not divide 64.
    """

    name: ClassVar[str]
    blocks_per_stage: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        num_classes: PositiveInt = 1000,
        input_shape: Sequence[int] = (224, 224, 3),
        stem: Literal["imagenet", "cifar"] = "imagenet",
        norm: Norm = "batch",
        groups: PositiveInt = 2,
    ) -> None:
        _, _, channels = image_shape(self.name, input_shape, smallest=17 if stem == "imagenet" else 5)
        normalised = norm_layer(self.name, norm, groups, narrowest=64)
        super().__init__(resnet.BasicBlock, self.blocks_per_stage, num_classes, norm_layer=normalised)
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        declare(self, self.blocks_per_stage)


class ResNet18(ResNet):
    """Two blocks per stage: 11 181 642 parameters for ten classes, 11 173 962 with the CIFAR stem."""

    name = "resnet18"
    blocks_per_stage = (2, 2, 2, 2)


class ResNet34(ResNet):
    """3, 4, 6 and 3 blocks: 21 289 802 parameters for ten classes, 21 282 122 with the CIFAR stem."""

    name = "resnet34"
    blocks_per_stage = (3, 4, 6, 3)


class CIFARResNet(Network):
    """A 3x3 convolution, three stages of basic blocks (16, 32, 64 channels), global average pooling, a classifier.

    The second and the third stage halve the image and double the channels. Weights of convolutions and dense layers
    are drawn from He's normal distribution.

    From He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2, in the form of the code of
    FPS (Chen et al., ICLR 2023), which pads with half of the zeros before and half after.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).
        width: Channels of the first stage; FPS's expansion e is a width of 16 e.
        shortcut: At the start of a stage, "A" drops every second pixel and pads with channels of zeros, "B" is a 1x1
            convolution with normalisation.
        norm: Normalisation after every convolution.
        groups: Number of groups of a group norm.

    Raises:
        ScenarioError: The images are smaller than 4 x 4, or the groups do not divide the width.
    """

    name: ClassVar[str]
    blocks_per_stage: ClassVar[int]

    def __init__(
        self,
        num_classes: PositiveInt = 10,
        input_shape: Sequence[int] = (32, 32, 3),
        width: PositiveInt = 16,
        shortcut: Literal["A", "B"] = "A",
        norm: Norm = "batch",
        groups: PositiveInt = 2,
    ) -> None:
        super().__init__()
        _, _, channels = image_shape(self.name, input_shape, smallest=4)
        normalised = norm_layer(self.name, norm, groups, width)
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = normalised(width)
        self.layer1 = _stage(self.blocks_per_stage, width, width, shortcut, normalised)
        self.layer2 = _stage(self.blocks_per_stage, width, 2 * width, shortcut, normalised)
        self.layer3 = _stage(self.blocks_per_stage, 2 * width, 4 * width, shortcut, normalised)
        self.fc = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        declare(self, [self.blocks_per_stage] * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: torch.Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(
    blocks: int, entering: int, leaving: int, shortcut: Literal["A", "B"], normalised: Callable[[int], nn.Module]
) -> nn.Sequential:
    stride = leaving // entering
    subsample: nn.Module | None = None
    if stride == 2 and shortcut == "A":
        subsample = ShortcutA()
    elif stride == 2:
        subsample = nn.Sequential(nn.Conv2d(entering, leaving, 1, stride, bias=False), normalised(leaving))
    first = BasicBlock(entering, leaving, stride, subsample, norm_layer=normalised)
    others = [BasicBlock(leaving, leaving, norm_layer=normalised) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)


class ShortcutA(nn.Module):
    """Keeps every second row and column of [n, C, H, W], and adds C // 2 channels of zeros before, C - C // 2 after."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels = x.shape[1]
        # pooling of single pixels, because its gradient stays channels-last, unlike that of a slice
        x = functional.avg_pool2d(x, 1, stride=2)
        return functional.pad(x, (0, 0, 0, 0, channels // 2, channels - channels // 2))


class ResNet8(CIFARResNet):
    """One block per stage: the ResNet-8 of CyclicFL, which specifies three basic blocks but no width.

    81 140 parameters for a hundred classes with width 16 and shortcut A, 320 260 with 32 and B.
    """

    name = "resnet8"
    blocks_per_stage = 1


class ResNet20(CIFARResNet):
    """Three blocks per stage: 269 722 parameters for ten classes."""

    name = "resnet20"
    blocks_per_stage = 3


class ResNet32(CIFARResNet):
    """Five blocks per stage: 464 154 parameters for ten classes."""

    name = "resnet32"
    blocks_per_stage = 5


class ResNet44(CIFARResNet):
    """Seven blocks per stage: 658 586 parameters for ten classes."""

    name = "resnet44"
    blocks_per_stage = 7


class ResNet56(CIFARResNet):
    """Nine blocks per stage: 853 018 parameters for ten classes."""

    name = "resnet56"
    blocks_per_stage = 9
