"""Two CNNs for Fashion-MNIST that match the description in CyclicFL: two convolutions, dropout, two dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network, image_shape
from rayfl.models.pooling import pooled


class CNNFashionMNIST(Network):
    """The small one: 5x5 convolutions with 10 and 20 filters, whole-channel dropout, 50 units, dropout.

    21 840 parameters for 28 x 28 x 1 inputs and ten classes: conv - pool - ReLU - conv - channel dropout - pool -
    ReLU - 320 to 50 - ReLU - dropout - 10.

    This is PyTorch's first MNIST example; CyclicFL gives no sizes.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).
        dropout: Probability of both dropouts, in training mode only.

    Raises:
        ScenarioError: The images are smaller than 16 x 16.
    """

    ordered_modules = ("conv1", "conv2", "fc1", "fc2")
    feature_layer = "fc2"

    def __init__(
        self,
        num_classes: PositiveInt = 10,
        input_shape: Sequence[int] = (28, 28, 1),
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5,
    ) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_fashion_mnist", input_shape, smallest=16)
        self.dropout = dropout
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        flat = 20 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        self.fc1 = nn.Linear(flat, 50)
        self.fc2 = nn.Linear(50, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pooled(self.conv1(x))
        x = functional.dropout2d(self.conv2(x), self.dropout, self.training)
        x = functional.relu(functional.max_pool2d(x, 2))
        x = functional.relu(self.fc1(x.flatten(1)))
        logits: torch.Tensor = self.fc2(functional.dropout(x, self.dropout, self.training))
        return logits


class CNNFashionMNISTLarge(Network):
    """The large one: 3x3 convolutions with 32 and 64 filters, one pooling, dropout 0.25, 128 units, dropout 0.5.

    1 199 882 parameters for 28 x 28 x 1 inputs and ten classes.

    This is the EMNIST network in the code of FedExP (Jhunjhunwala et al., ICLR 2023).

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 6 x 6.
    """

    ordered_modules = ("conv1", "conv2", "fc1", "fc2")
    feature_layer = "fc2"

    def __init__(self, num_classes: PositiveInt = 10, input_shape: Sequence[int] = (28, 28, 1)) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_fashion_mnist_large", input_shape, smallest=6)
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.conv1(x))
        x = pooled(self.conv2(x))
        x = functional.dropout(x, 0.25, self.training)
        x = functional.relu(self.fc1(x.flatten(1)))
        logits: torch.Tensor = self.fc2(functional.dropout(x, 0.5, self.training))
        return logits
