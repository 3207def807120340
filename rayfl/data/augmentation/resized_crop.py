"""Random crops of any size and shape, scaled to one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from rayfl.data.augmentation.augmentation import Augmentation
from rayfl.errors import ScenarioError

_TRIES = 10


@dataclass(frozen=True)
class ResizedCrop(Augmentation):
    """Crops a random part of each image and scales it like torchvision's RandomResizedCrop.

    The first of ten proposals that fits is used; if none fits, the largest central part with an allowed shape.

    Attributes:
        scale: Smallest and largest share of the area.
        ratio: Smallest and largest ratio of width to height; its logarithm is uniform.
        size: Height and width of the result, or its side; by default the size of the image.
        interpolation: With "bicubic", values may slightly exceed those of the image; pixels are clipped to 0..255.
        antialias: Whether downscaling averages all covered pixels, like Pillow, or only the nearest ones.

    Raises:
        ScenarioError: A smallest value is above the largest.
    """

    scale: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] = (0.08, 1.0)
    ratio: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (3 / 4, 4 / 3)
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    antialias: bool = True

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

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        high, wide = self.output_size(height, width)
        weights = _smooth_weights if self.antialias else _nearest_weights
        rows = weights(draws[0], draws[2], height, high, self.interpolation)
        columns = weights(draws[1], draws[3], width, wide, self.interpolation)
        scaled = torch.bmm(rows, x.view(n, height, width * channels).float()).view(n, high, width, channels)
        # Columns first, so this is also one product of large matrices per image.
        scaled = torch.bmm(columns, scaled.transpose(1, 2).reshape(n, width, high * channels))
        scaled = scaled.view(n, wide, high, channels).transpose(1, 2).contiguous()
        return scaled if x.is_floating_point() else scaled.round().clamp(0, 255).to(x.dtype)

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        _, height, width = labels.shape
        high, wide = self.output_size(height, width)
        rows, columns = _centres(draws[0], draws[2], high), _centres(draws[1], draws[3], wide)
        image = torch.arange(len(labels), device=labels.device)[:, None, None]
        return labels[image, rows[:, :, None], columns[:, None]]


def _centres(first: torch.Tensor, length: torch.Tensor, scaled: int) -> torch.Tensor:
    """[n, scaled] int64: the pixel that contains the centre of each pixel of the scaled part."""
    place = torch.arange(scaled, dtype=torch.float64, device=first.device)
    return (first[:, None] + ((place + 0.5) * length[:, None] / scaled).floor()).long()


def _smooth_weights(
    first: torch.Tensor, length: torch.Tensor, size: int, scaled: int, interpolation: str
) -> torch.Tensor:
    """[n, scaled, size] float32: how much each pixel of a line contributes to each pixel of the resized part.

    Args:
        first: [n] start of the part.
        length: [n] length of the part.
        size: Length of the line.
        scaled: Length of the scaled part.
        interpolation: "bilinear" or "bicubic".
    """
    place = torch.arange(size, dtype=torch.float64, device=first.device)
    first, length = first[:, None, None], length[:, None, None]
    step = length / scaled
    centre = first + (torch.arange(scaled, dtype=torch.float64, device=first.device)[:, None] + 0.5) * step
    distance = (place + 0.5 - centre).abs() / step.clamp(min=1)
    weights = _cubic(distance, -0.5) if interpolation == "bicubic" else (1 - distance).clamp(min=0)
    weights = torch.where((place >= first) & (place < first + length), weights, 0.0)
    return (weights / weights.sum(2, keepdim=True)).float()


def _nearest_weights(
    first: torch.Tensor, length: torch.Tensor, size: int, scaled: int, interpolation: str
) -> torch.Tensor:
    """Like `_smooth_weights`, for the nearest two or four pixels; the end pixels repeat beyond the part."""
    first, length = first[:, None], length[:, None]
    centre = (torch.arange(scaled, dtype=torch.float64, device=first.device) + 0.5) * (length / scaled) - 0.5
    weights = centre.new_zeros(len(first), scaled, size)
    for neighbour in (-1, 0, 1, 2) if interpolation == "bicubic" else (0, 1):
        place = centre.floor() + neighbour
        distance = (centre - place).abs()
        weight = _cubic(distance, -0.75) if interpolation == "bicubic" else 1 - distance
        inside = first + torch.minimum(place.clamp(min=0), length - 1)
        weights.scatter_add_(2, inside.long()[..., None], weight[..., None])
    return weights.float()


def _cubic(distance: torch.Tensor, a: float) -> torch.Tensor:
    """Keys' kernel: a = -0.5 as in Pillow, -0.75 as in PyTorch without antialiasing."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return torch.where(distance <= 1, near, torch.where(distance < 2, far, 0.0))
