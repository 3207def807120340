"""MobileNet-V2: torchvision's, to pre-train the backbone of `deeplab_v3_plus`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torchvision.models import mobilenet_v2

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
