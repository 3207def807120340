"""LeNet-5 for CIFAR-10: the "simple CNN" of MOON and NIID-Bench."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network, after_convolutions, image_shape
from rayfl.models.pooling import pooled


class LeNet5(Network):
    """Two 5x5 convolutions (6, 16 filters), each with ReLU and 2x2 max pooling, then 120 and 84 units, a classifier.

    62 006 parameters for 32 x 32 x 3 inputs and ten classes. The first dense layer adapts to the size of the input.

    From LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998, in the form of MOON's code (Li
    et al., CVPR 2021). CyclicFL names LeNet-5 without sizes.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 16 x 16.
    """

    ordered_modules = ("conv1", "conv2", "fc1", "fc2", "fc3")
    feature_layer = "fc3"

    def __init__(self, num_classes: PositiveInt = 10, input_shape: Sequence[int] = (32, 32, 3)) -> None:
        super().__init__()
        height, width, channels = image_shape("lenet5", input_shape, smallest=16)
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * after_convolutions(height, 2) * after_convolutions(width, 2), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pooled(self.conv1(x))
        x = pooled(self.conv2(x))
        x = functional.relu(self.fc1(x.flatten(1)))
        x = functional.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits
