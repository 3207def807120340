"""Vectorised augmentations that move pixels: flips, crops and rotations, with one draw per image or per batch.

If the scenario normalises, so are the images: a border of zeros then has the mean colour, not black.
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
"""Colour of pixels that an image does not cover: one value for all channels, or one per channel."""


@dataclass(frozen=True)
class Flip(Augmentation):
    """Mirrors images left to right.

    Attributes:
        probability: Probability of mirroring an image.
        per: Whether to draw for every "sample", or once per "batch" like the code of FedExP.
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
    """Pads images on all sides and cuts out a window at a random position.

    Attributes:
        padding: Padding in pixels.
        mode: Content of the border: "zeros" (or `fill`), or "reflect" (the image mirrored at its outermost pixels, as
            MOON and NIID-Bench pad CIFAR-10).
        probability: Probability of cropping an image; FedDyn and FedBug crop half of the images.
        per: Whether to draw for every "sample", or once per "batch" like the code of FedExP.
        fill: Colour of the border, one value or one for each channel: as the network gets them (0 to 1, or normalised),
            or from 0 to 255 if a later augmentation needs pixels.
        size: Height and width of the window, or its side; by default the size of the image. With a size, images that
            are not cropped at random are cropped to the centre.

    Raises:
        ScenarioError: Neither padding nor size is set; or images are too small to mirror that far, are smaller than the
            window, or have a different number of channels than `fill`.
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
            # Without a size, the central window is the image itself.
            middle = np.array(spaces)[:, None] // 2
            corner = np.where(rng.random(draws) >= self.probability, middle, corner)
        return np.broadcast_to(corner, (2, n)).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        padded = self._pad(x) if self.padding else x
        high, wide = self.output_size(height, width)
        padded_height, padded_width = padded.shape[1:3]
        # Every row of a window is one run of width * channels values; gathering runs is nine times faster than
        # indexing pixels.
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

    Every pixel takes the value of the pixel nearest to its source, without interpolation. This is the default of
    torchvision's RandomRotation, and so of MOON and NIID-Bench.

    Attributes:
        degrees: The largest angle.
        fill: Colour of pixels from outside the image; see `Crop`.

    Raises:
        ScenarioError: Images have a different number of channels than `fill`.
    """

    degrees: Annotated[float, Field(gt=0, le=180)] = 15.0
    fill: Fill = (0.0,)

    @property
    def num_draws(self) -> int:
        return 2

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        # Sines from the CPU, float64 and no fused operations, so every device finds the same pixels.
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
        row: [n, height, width] int64, the source row of each pixel in `x`.
        column: [n, height, width] int64, the source column.
        fill: Colour of pixels from outside the image.
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
    """Fills [..., channels] in place with scalars; a tensor of colours would be copied to the device per batch."""
    if len(fill) not in (1, x.shape[-1]):
        raise ScenarioError(f"data.augment: fill has {len(fill)} values, but images have {x.shape[-1]} channels")
    if x.dtype == torch.uint8 and not all(0 <= value <= 255 and value == int(value) for value in fill):
        raise ScenarioError(f"data.augment: fill is {list(fill)}, but pixels need integers from 0 to 255")
    if len(set(fill)) == 1:
        x.fill_(fill[0])
        return
    for channel, value in enumerate(fill):
        x[..., channel].fill_(value)


def _mirrored(size: int, padding: int, device: torch.device) -> torch.Tensor:
    """[size + 2 * padding] int64: the source pixel of each position in a padded line, mirrored at both ends."""
    place = torch.arange(-padding, size + padding, device=device)
    return (size - 1) - ((size - 1) - place.abs()).abs()


@dataclass(frozen=True)
class QuarterTurn(Augmentation):
    """Rotates each square image counter-clockwise by 0, 90, 180 or 270 degrees with equal probability.

    Raises:
        ScenarioError: When applied to images that are not square.
    """

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.integers(4, size=(1, shape[0])).astype(np.float64)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return quarter_turned(x, draws[0])

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        return quarter_turned(labels, draws[0])


def quarter_turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotates images counter-clockwise.

    Args:
        x: [n, side, side, ...] of any dtype.
        turns: [n] multiples of 90 degrees, 0 to 3.

    Returns:
        A new tensor of the same shape, contiguous.

    Raises:
        ScenarioError: The images are not square.
    """
    _, height, width = x.shape[:3]
    if height != width:
        raise ScenarioError(
            f"a rotation by a quarter turn needs square images, but these are {height} x {width}; scale them first"
        )
    turned = x
    for number in (1, 2, 3):
        turned = torch.where(turns.view(-1, *[1] * (x.ndim - 1)) == number, x.rot90(number, (1, 2)), turned)
    return turned.contiguous()
