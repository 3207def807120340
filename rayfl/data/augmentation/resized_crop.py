"""Random crops of any size and shape, scaled back to the size of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from rayfl.data.augmentation.augmentation import Augmentation
from rayfl.errors import ScenarioError

_TRIES = 10


@dataclass(frozen=True)
class ResizedCrop(Augmentation):
    """Cuts a random part of each image and scales it to the whole image's size, as torchvision's RandomResizedCrop.

    Scaling is bilinear and antialiased. Of ten proposals the first that fits is taken; where none does, the
    largest part in the middle of the image whose shape is allowed.

    Attributes:
        scale: Smallest and largest share of the area.
        ratio: Smallest and largest ratio of width to height, uniform in its logarithm.

    Raises:
        ScenarioError: A smallest value above the largest one.
    """

    scale: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] = (0.08, 1.0)
    ratio: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise ScenarioError(f"data.augment: {name} goes from {low:g} to {high:g}; give the smallest first")

    @property
    def num_draws(self) -> int:
        return 4

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        n, height, width, _ = shape
        area = height * width * rng.uniform(*self.scale, (_TRIES, n))
        ratio = np.exp(rng.uniform(np.log(self.ratio[0]), np.log(self.ratio[1]), (_TRIES, n)))
        wide, high = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
        fits = (wide >= 1) & (wide <= width) & (high >= 1) & (high <= height)
        first = fits.argmax(axis=0), np.arange(n)
        fallback_ratio = np.clip(width / height, *self.ratio)
        whole_width = max(1.0, np.rint(min(width, height * fallback_ratio)))
        whole_height = max(1.0, np.rint(min(height, width / fallback_ratio)))
        wide = np.where(fits.any(axis=0), wide[first], whole_width)
        high = np.where(fits.any(axis=0), high[first], whole_height)
        where = np.where(fits.any(axis=0), rng.random((2, n)), 0.5)
        return np.stack([np.floor(where[0] * (height - high + 1)), np.floor(where[1] * (width - wide + 1)), high, wide])

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        rows, columns = _weights(draws[0], draws[2], height), _weights(draws[1], draws[3], width)
        scaled = torch.bmm(rows, x.view(n, height, width * channels).float()).view(n, height, width, channels)
        # Columns first, so that this too is one product of large matrices for each image.
        scaled = torch.bmm(columns, scaled.transpose(1, 2).reshape(n, width, height * channels))
        scaled = scaled.view(n, width, height, channels).transpose(1, 2).contiguous()
        return scaled if x.is_floating_point() else scaled.round().clamp(0, 255).to(x.dtype)


def _weights(first: torch.Tensor, length: torch.Tensor, size: int) -> torch.Tensor:
    """[n, size, size] float32: how much each pixel of a line counts for each pixel of the scaled part of it."""
    place = torch.arange(size, dtype=torch.float64, device=first.device)
    first, length = first[:, None, None], length[:, None, None]
    step = length / size
    centre = first + (place[:, None] + 0.5) * step
    weights = (1 - (place + 0.5 - centre).abs() / step.clamp(min=1)).clamp(min=0)
    weights = torch.where((place >= first) & (place < first + length), weights, 0.0)
    return (weights / weights.sum(2, keepdim=True)).float()
