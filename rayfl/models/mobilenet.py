"""torchvision's MobileNet-V2, to pre-train the backbone of DeepLabV3+; and DeepLabV3+, a class for every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import nn
from torchvision.models import mobilenet_v2
from torchvision.models.segmentation.deeplabv3 import ASPP

from rayfl.errors import ScenarioError
from rayfl.models.network import Network, image_shape


class MobileNetV2(Network):
    """Inverted residual blocks, global average pooling, dropout, a classifier: 3 504 872 parameters for 1000 classes.

    Names, initialisation and layers are those of torchvision's `mobilenet_v2`, except the name of the classifier, so
    its other weights fit.

    From Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 33 x 33, which leaves a single pixel, or do not have three channels.
    """

    feature_layer = "classifier"

    def __init__(self, num_classes: PositiveInt = 1000, input_shape: Sequence[int] = (224, 224, 3)) -> None:
        super().__init__()
        _, _, channels = image_shape("mobilenet_v2", input_shape, smallest=33)
        if channels != 3:
            raise ScenarioError(f"model 'mobilenet_v2': takes images of 3 channels, the data has {channels}")
        whole = mobilenet_v2(num_classes=num_classes)
        self.features = whole.features
        self.dropout, self.classifier = whole.classifier
        self.ordered_modules = (*(f"features.{number}" for number in range(len(self.features))), "classifier")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.features:
            x = layer(x)
        logits: torch.Tensor = self.classifier(self.dropout(x.mean(dim=(2, 3))))
        return logits


class DeepLabV3Plus(Network):
    """5 225 203 parameters for 19 classes, of which 1 811 712 are in MobileNet-V2 without its last convolution.

    The output of the backbone has a sixteenth of the height and width of the image: its last two stages keep the size,
    and their depthwise convolutions are dilated by 2 from the second block on. Names, initialisation and layers of
    `features` are those of torchvision's `mobilenet_v2`, so its weights fit. Images of any size work, also in training.

    From Chen et al., "Encoder-Decoder with Atrous Separable Convolution for Semantic Image Segmentation", ECCV 2018;
    pooling pyramid and decoder as in VainF's DeepLabV3Plus-Pytorch, which FPS trains.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 32 x 32, or do not have three channels.
    """

    feature_layer = "classifier"

    def __init__(self, num_classes: PositiveInt = 19, input_shape: Sequence[int] = (768, 768, 3)) -> None:
        super().__init__()
        _, _, channels = image_shape("deeplab_v3_plus", input_shape, smallest=32)
        if channels != 3:
            raise ScenarioError(f"model 'deeplab_v3_plus': takes images of 3 channels, the data has {channels}")
        self.features = mobilenet_v2().features[:-1]
        _dilate(self.features[_DILATED:])
        self.aspp = ASPP(320, [6, 12, 18])
        self.aspp.project[3] = nn.Dropout(0.1)
        self.reduce = _convolution(24, 48, 1)
        self.fuse = _convolution(256 + 48, 256, 3)
        self.classifier = nn.Conv2d(256, num_classes, 1)
        self.ordered_modules = (
            *(f"features.{number}" for number in range(len(self.features))),
            *("aspp", "reduce", "fuse", "classifier"),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [n, 3, height, width] to [n, classes, height, width]."""
        size = x.shape[2:]
        for layer in self.features[:_LOW]:
            x = layer(x)
        low = x
        for layer in self.features[_LOW:]:
            x = layer(x)
        x = _resized(self.aspp(x), low.shape[2:])
        x = self.classifier(self.fuse(torch.cat([self.reduce(low), x], dim=1)))
        return _resized(x, size)


_LOW = 4
"""Blocks up to the last one with 24 channels, whose feature maps have a quarter of the image size."""

_DILATED = 14
"""The first block with 160 channels, which would halve the size again."""


def _dilate(blocks: nn.Sequential) -> None:
    """Removes the stride of the first block, and dilates the others to keep their receptive fields."""
    for number, block in enumerate(blocks):
        depthwise: Any = block.get_submodule("conv.1.0")
        depthwise.stride = (1, 1)
        if number:
            depthwise.dilation = depthwise.padding = (2, 2)


def _convolution(inputs: int, outputs: int, kernel_size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _resized(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=False)
