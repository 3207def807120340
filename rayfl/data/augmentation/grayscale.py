"""Conversion to grey."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rayfl.data.augmentation.augmentation import Augmentation, Probability
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class Grayscale(Augmentation):
    """Turns images grey like torchvision's RandomGrayscale, keeping the number of channels.

    Attributes:
        probability: Probability of turning an image grey.

    Raises:
        ScenarioError: When applied to images that do not have one or three channels.
    """

    probability: Probability = 0.1

    @property
    def needs_pixels(self) -> bool:
        return True

    @property
    def moves_pixels(self) -> bool:
        return False

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return (rng.random((1, shape[0])) < self.probability).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        if x.shape[3] not in (1, 3):
            raise ScenarioError(
                f"data.augment: 'grayscale' is for images of 1 or 3 channels, these have {x.shape[3]}; leave it out"
            )
        return torch.where(draws[0, :, None, None, None] != 0, luma(x), x)


def luma(x: torch.Tensor) -> torch.Tensor:
    """[n, height, width, 1] uint8 from pixels [n, height, width, channels], rounded down like torchvision."""
    if x.shape[3] != 3:
        return x[..., :1]
    return (0.2989 * x[..., :1] + 0.587 * x[..., 1:2] + 0.114 * x[..., 2:]).to(torch.uint8)
