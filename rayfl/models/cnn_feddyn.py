"""The CNNs of FedDyn, FedBug and FedExP: 5x5 convolutions without padding, each pooled, then three dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network, after_convolutions, image_shape
from rayfl.models.pooling import pooled


class CNNFedDyn(Network):
    """The CNN for CIFAR: two convolutions with ReLU and 2x2 max pooling, then 384 and 192 units and a classifier.

    797 962 parameters for 32 x 32 x 3 inputs and ten classes, 815 332 for a hundred; FedExP's, with
    `widths = [32, 64]`, has 744 330 and 761 700.

    From Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, and its code; also in the code of
    FedBug (Kao et al., 2023) and FedExP (Jhunjhunwala et al., ICLR 2023).

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).
        widths: Filters of the two convolutions.

    Raises:
        ScenarioError: The images are smaller than 16 x 16.
    """

    ordered_modules = ("conv1", "conv2", "fc1", "fc2", "fc3")
    feature_layer = "fc3"

    def __init__(
        self,
        num_classes: PositiveInt = 10,
        input_shape: Sequence[int] = (32, 32, 3),
        widths: tuple[PositiveInt, PositiveInt] = (64, 64),
    ) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_feddyn", input_shape, smallest=16)
        first, second = widths
        self.conv1 = nn.Conv2d(channels, first, 5)
        self.conv2 = nn.Conv2d(first, second, 5)
        self.fc1 = nn.Linear(second * after_convolutions(height, 2) * after_convolutions(width, 2), 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pooled(self.conv1(x))
        x = pooled(self.conv2(x))
        x = functional.relu(self.fc1(x.flatten(1)))
        x = functional.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits


class CNNFedBugTiny(Network):
    """The CNN for Tiny-ImageNet: three pooled convolutions of 64 filters, then 256 and 128 units and a classifier.

    530 888 parameters for 64 x 64 x 3 inputs and 200 classes. The grouping "code" unfreezes like the code of FedBug: in
    five periods, the third convolution together with the first. The percentages in the paper match unfreezing the six
    modules one by one.

    From Kao et al., "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning", 2023, and its code.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 36 x 36.
    """

    ordered_modules = ("conv1", "conv2", "conv3", "fc1", "fc2", "fc3")
    feature_layer = "fc3"
    groupings = MappingProxyType({"code": (("conv1", "conv3"), ("conv2",), ("fc1",), ("fc2",), ("fc3",))})

    def __init__(self, num_classes: PositiveInt = 200, input_shape: Sequence[int] = (64, 64, 3)) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_fedbug_tiny", input_shape, smallest=36)
        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.conv3 = nn.Conv2d(64, 64, 5)
        self.fc1 = nn.Linear(64 * after_convolutions(height, 3) * after_convolutions(width, 3), 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = pooled(convolution(x))
        x = functional.relu(self.fc1(x.flatten(1)))
        x = functional.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits
