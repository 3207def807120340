"""Multilayer perceptrons, such as those of FedDyn for MNIST and EMNIST."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from rayfl.models.network import Network


class MLP(Network):
    """Dense layers with ReLU between them, on inputs of any shape, flattened.

    199 210 parameters for 28 x 28 x 1 inputs and ten classes (FedDyn's MNIST, and the "2NN" of FedAvg's paper);
    89 610 with `hidden = [100, 100]` (FedDyn's EMNIST).

    From Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, and its code.

    Args:
        num_classes: Width of the output.
        input_shape: Any shape.
        hidden: Units of the layers before the last, from input to output; an empty list gives a linear classifier.
    """

    def __init__(
        self,
        num_classes: PositiveInt = 10,
        input_shape: Sequence[int] = (28, 28, 1),
        hidden: tuple[PositiveInt, ...] = (200, 200),
    ) -> None:
        super().__init__()
        sizes = (math.prod(input_shape), *hidden, num_classes)
        self.layers = nn.ModuleList(nn.Linear(entering, leaving) for entering, leaving in pairwise(sizes))
        self.ordered_modules = tuple(f"layers.{i}" for i in range(len(self.layers)))
        self.feature_layer = self.ordered_modules[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *hidden, classifier = self.layers
        x = x.flatten(1)
        for layer in hidden:
            x = functional.relu(layer(x))
        logits: torch.Tensor = classifier(x)
        return logits
