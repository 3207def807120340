"""torchvision's ResNet-18 and ResNet-34, with the stems and normalisations that federated learning uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import PositiveInt
from torch import nn
from torchvision.models import resnet

from rayfl.models.network import Network, image_shape
from rayfl.models.residual import Norm, declare, norm_layer


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
