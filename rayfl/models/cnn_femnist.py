"""The CNN for FEMNIST, with one dense layer as in CyclicFL or two as in LEAF."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network, image_shape
from rayfl.models.pooling import pooled


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
