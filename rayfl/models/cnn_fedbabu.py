"""FedBABU's CNN for CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torch import nn

from rayfl.models.network import Network, image_shape


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
        # same order as rayfl.models.pooling: the same bits, and ReLU computes a quarter of the values
        nn.MaxPool2d(2),
        nn.ReLU(),
    )
