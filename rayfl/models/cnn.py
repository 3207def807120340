"""Small convolutional networks: LeNet-5 (the "simple CNN" of MOON and NIID-Bench), two for Fashion-MNIST that match the
description in CyclicFL, and those of LEAF's FEMNIST, FedDyn, FedBug, FedExP and FedBABU.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network, after_convolutions, image_shape


def pooled(x: torch.Tensor) -> torch.Tensor:
    """2x2 max pooling and ReLU of feature maps, [n, C, H, W] to [n, C, H // 2, W // 2].

    The two commute, with bitwise equal values and gradients; in this order ReLU computes a quarter of the values.
    """
    return functional.relu(functional.max_pool2d(x, 2))


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


class CNNFemnist(Network):
    """Two 5x5 "same" convolutions, each with ReLU and 2x2 max pooling, then one or two dense layers.

    246 590 parameters for 28 x 28 x 1 inputs and 62 classes; with `hidden = 2048` 6 603 710, as in LEAF.

    From Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, and its code. CyclicFL has "two convolutions
    and one fully connected layer" without sizes; the default is the convolutions of LEAF with only the last layer.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).
        widths: Filters of the two convolutions.
        hidden: Units of a dense ReLU layer before the last one; None for no such layer.

    Raises:
        ScenarioError: The images are smaller than 4 x 4.
    """

    def __init__(
        self,
        num_classes: PositiveInt = 62,
        input_shape: Sequence[int] = (28, 28, 1),
        widths: tuple[PositiveInt, PositiveInt] = (32, 64),
        hidden: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_femnist", input_shape, smallest=4)
        first, second = widths
        flat = second * (height // 2 // 2) * (width // 2 // 2)
        self.conv1 = nn.Conv2d(channels, first, 5, padding=2)
        self.conv2 = nn.Conv2d(first, second, 5, padding=2)
        if hidden is None:
            self.hidden = None
            self.classifier = nn.Linear(flat, num_classes)
            self.ordered_modules = ("conv1", "conv2", "classifier")
        else:
            self.hidden = nn.Linear(flat, hidden)
            self.classifier = nn.Linear(hidden, num_classes)
            self.ordered_modules = ("conv1", "conv2", "hidden", "classifier")
        self.feature_layer = "classifier"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pooled(self.conv1(x))
        x = pooled(self.conv2(x)).flatten(1)
        if self.hidden is not None:
            x = functional.relu(self.hidden(x))
        logits: torch.Tensor = self.classifier(x)
        return logits


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


class CNNFedBABU(Network):
    """Four blocks of a 3x3 "same" convolution with 64 filters, batch norm, ReLU and 2x2 max pooling; a classifier.

    115 658 parameters for 32 x 32 x 3 inputs and ten classes. Batch norm keeps no running statistics: it normalises by
    the current batch in evaluation too, so a prediction depends on the samples that share its batch.

    From Oh et al., "FedBABU: Toward Enhanced Representation for Federated Image Classification", ICLR 2022.

    Args:
        num_classes: Width of the output.
        input_shape: (height, width, channels).

    Raises:
        ScenarioError: The images are smaller than 16 x 16.
    """

    ordered_modules = ("block1", "block2", "block3", "block4", "classifier")
    feature_layer = "classifier"

    def __init__(self, num_classes: PositiveInt = 10, input_shape: Sequence[int] = (32, 32, 3)) -> None:
        super().__init__()
        height, width, channels = image_shape("cnn_fedbabu", input_shape, smallest=16)
        self.block1 = _block(channels)
        self.block2 = _block(64)
        self.block3 = _block(64)
        self.block4 = _block(64)
        self.classifier = nn.Linear(64 * (height // 16) * (width // 16), num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block4(self.block3(self.block2(self.block1(x))))
        logits: torch.Tensor = self.classifier(x.flatten(1))
        return logits


def _block(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.BatchNorm2d(64, track_running_stats=False),
        # same order as rayfl.models.cnn: the same bits, and ReLU computes a quarter of the values
        nn.MaxPool2d(2),
        nn.ReLU(),
    )
