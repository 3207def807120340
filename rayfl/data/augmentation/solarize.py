"""Solarisation: inversion of bright pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from rayfl.data.augmentation.augmentation import Augmentation, Probability


@dataclass(frozen=True)
class Solarize(Augmentation):
    """Inverts values at or above a threshold like torchvision's RandomSolarize.

    Attributes:
        threshold: The smallest inverted value, 0 to 255.
        probability: Probability of solarising an image.
    """

    threshold: Annotated[int, Field(ge=0, le=255)] = 128
    probability: Probability = 0.5

    @property
    def needs_pixels(self) -> bool:
        return True

    @property
    def moves_pixels(self) -> bool:
        return False

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return (rng.random((1, shape[0])) < self.probability).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        chosen = draws[0, :, None, None, None] != 0
        return torch.where(chosen & (x >= self.threshold), 255 - x, x)
