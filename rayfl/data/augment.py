"""Augmentation of a batch: one draw per sample, or one for all, and no loop over samples.

All draws come from a numpy generator on the CPU, so CPU and GPU augment alike. Images come normalised, where the
scenario normalises: a border of zeros has the colour of the mean, not black.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt

from rayfl.errors import ScenarioError

Augmentation = Callable[[torch.Tensor, np.random.Generator], torch.Tensor]
"""(x, rng) to a new tensor of the same kind; x: [n, height, width, channels] float, contiguous."""

Probability = Annotated[float, Field(ge=0, le=1)]
Fill = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
"""The colour of what an image does not cover: one value for all channels, or one for each."""


@dataclass(frozen=True)
class Flip:
    """Mirrors images left to right with the given probability.

    per: draw for every "sample", or once for the whole "batch", as FedExP's code does.
    """

    probability: Probability = 0.5
    per: Literal["sample", "batch"] = "sample"

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        draws = len(x) if self.per == "sample" else 1
        mirrored = torch.from_numpy(rng.random(draws) < self.probability).to(x.device)
        return torch.where(mirrored[:, None, None, None], x.flip(2), x)


@dataclass(frozen=True)
class Crop:
    """Pads images on all sides and cuts a window of the original size at a random place.

    padding: pixels. mode: what the border is made of, "zeros" (or `fill` instead), or "reflect" (the image mirrored
        at its outermost pixels, as MOON and NIID-Bench pad CIFAR-10).
    probability: of being cropped; others stay as they are. FedDyn and FedBug crop half of the images.
    per: draw for every "sample", or once for the whole "batch", as FedExP's code does.

    Raises:
        ScenarioError: on the first batch, where the images are too small to be mirrored that far, or have other
            channels than `fill`.
    """

    padding: PositiveInt = 4
    mode: Literal["zeros", "reflect"] = "zeros"
    probability: Probability = 1.0
    per: Literal["sample", "batch"] = "sample"
    fill: Fill = (0.0,)

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        n, height, width, channels = x.shape
        draws = n if self.per == "sample" else 1
        corner = rng.integers(0, 2 * self.padding + 1, (2, draws, 1))
        if self.probability < 1:
            # The window in the middle is the image itself.
            corner[:, rng.random(draws) >= self.probability] = self.padding
        top, left = corner
        padded = self._pad(x)
        padded_height, padded_width = padded.shape[1:3]
        # Every row of every window is one run of width * channels values: gathering runs is nine times faster
        # than indexing pixels.
        image_rows = np.arange(n)[:, None] * padded_height + top + np.arange(height)
        starts = torch.from_numpy((image_rows * padded_width + left).ravel()).to(x.device)
        runs = padded.view(-1).unfold(0, width * channels, channels)
        return runs.index_select(0, starts).view(n, height, width, channels)

    def _pad(self, x: torch.Tensor) -> torch.Tensor:
        p, (n, height, width, channels) = self.padding, x.shape
        if self.mode == "zeros":
            padded = x.new_empty(n, height + 2 * p, width + 2 * p, channels)
            padded[...] = _colour(self.fill, x)
            padded[:, p : p + height, p : p + width] = x
            return padded
        if p >= min(height, width):
            raise ScenarioError(
                f"data.augment: 'crop' with padding {p} and mode 'reflect' needs images larger than {p} pixels, "
                f"these are {height} x {width}"
            )
        return x.index_select(1, _mirrored(height, p, x.device)).index_select(2, _mirrored(width, p, x.device))


@dataclass(frozen=True)
class Rotate:
    """Turns each image about its centre by an angle drawn uniformly from -degrees to degrees.

    A pixel shows the one that lies nearest to where it comes from, not a blend: so does torchvision's RandomRotation
    by default, hence MOON and NIID-Bench. fill: what comes from outside the image.

    Raises:
        ScenarioError: on the first batch, where the images have other channels than `fill`.
    """

    degrees: Annotated[float, Field(gt=0, le=180)] = 15.0
    fill: Fill = (0.0,)

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        n, height, width, channels = x.shape
        angles = np.deg2rad(rng.uniform(-self.degrees, self.degrees, (n, 1, 1)))
        # Sines from the CPU, float64 and no fused operations: every device finds the same pixels.
        sin, cos = (torch.from_numpy(function(angles)).to(x.device) for function in (np.sin, np.cos))
        middle, centre = (height - 1) / 2, (width - 1) / 2
        down = torch.arange(height, dtype=torch.float64, device=x.device)[:, None] - middle
        right = torch.arange(width, dtype=torch.float64, device=x.device) - centre
        row = (cos * down + sin * right + middle).round().long()
        column = (cos * right - sin * down + centre).round().long()
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        image = torch.arange(n, device=x.device)[:, None, None] * height
        outside = n * height * width
        pixels = torch.where(inside, (image + row) * width + column, outside)
        colours = torch.cat([x.view(-1, channels), _colour(self.fill, x).expand(1, channels)])
        return colours.index_select(0, pixels.view(-1)).view_as(x)


def _colour(fill: Fill, x: torch.Tensor) -> torch.Tensor:
    if len(fill) not in (1, x.shape[3]):
        raise ScenarioError(f"data.augment: fill has {len(fill)} values, but images have {x.shape[3]} channels")
    return torch.tensor(fill, dtype=x.dtype, device=x.device)


def _mirrored(size: int, padding: int, device: torch.device) -> torch.Tensor:
    """[size + 2 * padding] int64: the pixel that each place of a padded line shows, mirrored at both ends."""
    place = torch.arange(-padding, size + padding, device=device)
    return (size - 1) - ((size - 1) - place.abs()).abs()
