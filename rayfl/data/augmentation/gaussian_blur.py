"""Gaussian blur with a random width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from rayfl.data.augmentation.augmentation import Augmentation, Probability
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Blurs images with a Gaussian kernel like torchvision's GaussianBlur; borders are mirrored.

    Attributes:
        kernel_size: Size of the kernel in pixels; odd.
        sigma: Smallest and largest standard deviation in pixels; drawn uniformly between them.
        probability: Probability of blurring an image.

    Raises:
        ScenarioError: The kernel size is even, the smallest sigma is above the largest, or images are too small to
            mirror that far.
    """

    kernel_size: Annotated[int, Field(ge=3)] = 5
    sigma: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.1, 2.0)
    probability: Probability = 1.0

    def __post_init__(self) -> None:
        if self.kernel_size % 2 == 0:
            raise ScenarioError(f"data.augment: kernel_size of 'gaussian_blur' must be odd (got {self.kernel_size})")
        low, high = self.sigma
        if low > high:
            raise ScenarioError(f"data.augment: sigma goes from {low:g} to {high:g}; give the smallest first")

    @property
    def num_draws(self) -> int:
        return self._radius + 1

    @property
    def moves_pixels(self) -> bool:
        return False

    @property
    def _radius(self) -> int:
        return self.kernel_size // 2

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        """[radius + 1, n]: weight of the kernel by distance; without blurring, all weight is at distance 0."""
        sigma = rng.uniform(*self.sigma, shape[0])
        distance = np.arange(self._radius + 1)[:, None]
        weights = np.exp(-0.5 * (distance / sigma) ** 2)
        weights /= weights[0] + 2 * weights[1:].sum(axis=0)
        return np.where(rng.random(shape[0]) < self.probability, weights, distance == 0)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        _, height, width, _ = x.shape
        if self._radius >= min(height, width):
            raise ScenarioError(
                f"data.augment: 'gaussian_blur' with kernel_size {self.kernel_size} needs images larger than "
                f"{self._radius} pixels, these are {height} x {width}"
            )
        values = x if x.is_floating_point() else x.float()
        weights = draws.to(values.dtype)[..., None, None, None]
        blurred = _along(_along(values, weights, 1), weights, 2)
        return blurred if x.is_floating_point() else blurred.round_().clamp_(0, 255).to(x.dtype)


def _along(x: torch.Tensor, weights: torch.Tensor, dim: int) -> torch.Tensor:
    """The weighted sum of each pixel and its neighbours in one dimension, mirrored at both ends."""
    size, radius = x.shape[dim], len(weights) - 1
    place = torch.arange(-radius, size + radius, device=x.device)
    mirrored = x.index_select(dim, (size - 1) - ((size - 1) - place.abs()).abs())
    blurred = x * weights[0]
    for distance in range(1, radius + 1):
        before = mirrored.narrow(dim, radius - distance, size)
        blurred.addcmul_(before + mirrored.narrow(dim, radius + distance, size), weights[distance])
    return blurred
