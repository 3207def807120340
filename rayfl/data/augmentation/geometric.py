"""Augmentation that moves pixels: flips, crops and rotations, one draw per image or one per batch, without a loop.

Images come normalised where the scenario normalises: a border of zeros then has the colour of the mean, not black.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from rayfl.data.augmentation.augmentation import Augmentation, Probability, outside
from rayfl.errors import ScenarioError

Fill = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]
"""The colour of what an image does not cover: one value for all channels, or one for each."""


@dataclass(frozen=True)
class Flip(Augmentation):
    """Mirrors images left to right.

    Attributes:
        probability: Of being mirrored.
        per: Whether to draw for every "sample", or once for the whole "batch", as FedExP's code does.
    """

    probability: Probability = 0.5
    per: Literal["sample", "batch"] = "sample"

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        draws = shape[0] if self.per == "sample" else 1
        return np.broadcast_to(rng.random(draws) < self.probability, (1, shape[0])).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(draws[0, :, None, None, None] != 0, x.flip(2), x)

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        return self.apply(labels[..., None], draws)[..., 0]


@dataclass(frozen=True)
class Crop(Augmentation):
    """Pads images on all sides and cuts a window at a random place.

    Attributes:
        padding: Pixels.
        mode: What the border is made of: "zeros" (or `fill` instead), or "reflect" (the image mirrored at its
            outermost pixels, as MOON and NIID-Bench pad CIFAR-10).
        probability: Of being cropped; others stay as they are. FedDyn and FedBug crop half of the images.
        per: Whether to draw for every "sample", or once for the whole "batch", as FedExP's code does.
        fill: The border's colour.
        size: Height and width of the window, or its side; by default the image's. With a size, images that are not
            cropped are cut from the middle.

    Raises:
        ScenarioError: Neither a padding nor a size; or when applied to images that are too small to be mirrored that
            far, or smaller than the window, or that have other channels than `fill`.
    """

    padding: NonNegativeInt = 4
    mode: Literal["zeros", "reflect"] = "zeros"
    probability: Probability = 1.0
    per: Literal["sample", "batch"] = "sample"
    fill: Fill = (0.0,)
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None

    def __post_init__(self) -> None:
        if not self.padding and self.size is None:
            raise ScenarioError("data.augment: 'crop' with padding 0 leaves images as they are; set size or padding")

    @property
    def num_draws(self) -> int:
        return 2

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        n, height, width, _ = shape
        high, wide = self.output_size(height, width)
        spaces = [height - high + 2 * self.padding, width - wide + 2 * self.padding]
        if min(spaces) < 0:
            raise ScenarioError(
                f"data.augment: 'crop' cannot cut {high} x {wide} pixels from images of {height} x {width} with "
                f"padding {self.padding}; choose a smaller size"
            )
        draws = n if self.per == "sample" else 1
        corner = np.stack([rng.integers(0, space + 1, draws) for space in spaces])
        if self.probability < 1:
            # Without a size, the window in the middle is the image itself.
            middle = np.array(spaces)[:, None] // 2
            corner = np.where(rng.random(draws) >= self.probability, middle, corner)
        return np.broadcast_to(corner, (2, n)).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        padded = self._pad(x) if self.padding else x
        high, wide = self.output_size(height, width)
        padded_height, padded_width = padded.shape[1:3]
        # Every row of every window is one run of width * channels values: gathering runs is nine times faster
        # than indexing pixels.
        top, left = draws.long()[..., None]
        image = torch.arange(n, device=x.device)[:, None] * padded_height
        image_rows = image + top + torch.arange(high, device=x.device)
        starts = (image_rows * padded_width + left).view(-1)
        runs = padded.view(-1).unfold(0, wide * channels, channels)
        return runs.index_select(0, starts).view(n, high, wide, channels)

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        uncovers = self.padding and self.mode == "zeros"
        mover = replace(self, fill=outside(ignored, "crop")) if uncovers else self
        return mover.apply(labels[..., None], draws)[..., 0]

    def _pad(self, x: torch.Tensor) -> torch.Tensor:
        p, (n, height, width, channels) = self.padding, x.shape
        if self.mode == "zeros":
            padded = x.new_empty(n, height + 2 * p, width + 2 * p, channels)
            _paint(padded, self.fill)
            padded[:, p : p + height, p : p + width] = x
            return padded
        if p >= min(height, width):
            raise ScenarioError(
                f"data.augment: 'crop' with padding {p} and mode 'reflect' needs images larger than {p} pixels, "
                f"these are {height} x {width}"
            )
        return x.index_select(1, _mirrored(height, p, x.device)).index_select(2, _mirrored(width, p, x.device))


@dataclass(frozen=True)
class Rotate(Augmentation):
    """Rotates each image about its centre by an angle drawn uniformly from -degrees to degrees.

    Every pixel takes the value of the one nearest to where it comes from, without interpolation: the default of
    torchvision's RandomRotation, hence what MOON and NIID-Bench do.

    Attributes:
        degrees: The largest angle.
        fill: The colour of what comes from outside the image.

    Raises:
        ScenarioError: When applied to images that have other channels than `fill`.
    """

    degrees: Annotated[float, Field(gt=0, le=180)] = 15.0
    fill: Fill = (0.0,)

    @property
    def num_draws(self) -> int:
        return 2

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        # Sines from the CPU, float64 and no fused operations: every device finds the same pixels.
        angles = np.deg2rad(rng.uniform(-self.degrees, self.degrees, (shape[0], 1, 1)))
        return np.stack([np.sin(angles).ravel(), np.cos(angles).ravel()])

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        _, height, width, _ = x.shape
        sin, cos = draws[..., None, None]
        middle, centre = (height - 1) / 2, (width - 1) / 2
        down = torch.arange(height, dtype=torch.float64, device=x.device)[:, None] - middle
        right = torch.arange(width, dtype=torch.float64, device=x.device) - centre
        row = (cos * down + sin * right + middle).round().long()
        column = (cos * right - sin * down + centre).round().long()
        return sampled(x, row, column, self.fill)

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        return replace(self, fill=outside(ignored, "rotate")).apply(labels[..., None], draws)[..., 0]


def sampled(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, fill: Fill) -> torch.Tensor:
    """Looks up every pixel of the result.

    Args:
        x: [n, height, width, channels], contiguous.
        row: [n, height, width] int64, the row of `x` from which each pixel comes.
        column: [n, height, width] int64, its column.
        fill: The colour of pixels that come from outside the image.
    """
    n, height, width, channels = x.shape
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    image = torch.arange(n, device=x.device)[:, None, None] * height
    outside = n * height * width
    pixels = torch.where(inside, (image + row) * width + column, outside)
    colours = x.new_empty(outside + 1, channels)
    colours[:outside] = x.view(-1, channels)
    _paint(colours[outside:], fill)
    return colours.index_select(0, pixels.view(-1)).view_as(x)


def _paint(x: torch.Tensor, fill: Fill) -> None:
    """Fills [..., channels] in place by scalars: a tensor of colours would be copied to the device for every batch."""
    if len(fill) not in (1, x.shape[-1]):
        raise ScenarioError(f"data.augment: fill has {len(fill)} values, but images have {x.shape[-1]} channels")
    if x.dtype == torch.uint8 and not all(0 <= value <= 255 and value == int(value) for value in fill):
        raise ScenarioError(f"data.augment: fill {list(fill)} is for pixels, which are whole numbers from 0 to 255")
    if len(set(fill)) == 1:
        x.fill_(fill[0])
        return
    for channel, value in enumerate(fill):
        x[..., channel].fill_(value)


def _mirrored(size: int, padding: int, device: torch.device) -> torch.Tensor:
    """[size + 2 * padding] int64: the pixel that each place of a padded line shows, mirrored at both ends."""
    place = torch.arange(-padding, size + padding, device=device)
    return (size - 1) - ((size - 1) - place.abs()).abs()
