"""Vectorised augmentations that move no pixels: colour jitter, grey, solarisation and blur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat

from rayfl.data.augmentation.augmentation import Augmentation, Probability
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Changes the colours of images like torchvision's ColorJitter; pixels are integers after every step.

    Saturation and hue do not apply to images of one channel.

    Attributes:
        brightness: The factor is uniform in [max(0, 1 - brightness), 1 + brightness].
        contrast: Likewise.
        saturation: Likewise.
        hue: The shift is uniform in [-hue, hue], where 1 is a full turn of the colour circle.
        probability: Probability of changing an image.

    Raises:
        ScenarioError: When applied to images that do not have one or three channels.
    """

    brightness: NonNegativeFloat = 0.0
    contrast: NonNegativeFloat = 0.0
    saturation: NonNegativeFloat = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    probability: Probability = 1.0

    @property
    def num_draws(self) -> int:
        return 2 * _BLENDS + 1 + _BLENDS

    @property
    def needs_pixels(self) -> bool:
        return True

    @property
    def moves_pixels(self) -> bool:
        return False

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        """[10, n]: factors and kinds of three blends in order, the hue shift, and whether each blend precedes it."""
        n = shape[0]
        strength = np.array([self.brightness, self.contrast, self.saturation])[:, None]
        factor = rng.uniform(np.maximum(0, 1 - strength), 1 + strength, (_BLENDS, n))
        shift = rng.uniform(-self.hue, self.hue, n)
        changed = rng.random(n) < self.probability
        place = rng.permuted(np.broadcast_to(np.arange(_BLENDS + 1)[:, None], (_BLENDS + 1, n)), axis=0)
        kind = place[:_BLENDS].argsort(axis=0)
        factor = np.where(changed, np.take_along_axis(factor, kind, axis=0), 1.0)
        early = np.take_along_axis(place[:_BLENDS], kind, axis=0) < place[_BLENDS]
        return np.concatenate([factor, kind, np.where(changed, shift, 0.0)[None], early])

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        if channels not in (1, 3):
            raise ScenarioError(
                f"data.augment: 'color_jitter' is for images of 1 or 3 channels, these have {channels}; leave it out"
            )
        factors, kinds, shift, early = draws.split((_BLENDS, _BLENDS, 1, _BLENDS))  # type: ignore[no-untyped-call]
        # Planes instead of pixels, so operations on a channel access contiguous memory.
        planes = x.permute(3, 0, 1, 2).reshape(channels, n, height * width).to(torch.float32)
        blends = bool(self.brightness or self.contrast or self.saturation)
        coloured = channels == 3 and self.hue > 0
        if blends:
            for factor, kind, before in zip(factors, kinds, early, strict=True):
                _blend_(planes, torch.where(before != 0, factor, 1.0) if coloured else factor, kind)
        if coloured:
            planes = torch.where(shift[0, :, None] != 0, shifted_hue(planes, shift[0]), planes)
        if blends and coloured:
            for factor, kind, before in zip(factors, kinds, early, strict=True):
                _blend_(planes, torch.where(before != 0, 1.0, factor), kind)
        return planes.to(torch.uint8).view(channels, n, height, width).permute(1, 2, 3, 0).contiguous()


_BLENDS = 3
_CONTRAST, _SATURATION = 1, 2


def _blend_(planes: torch.Tensor, factor: torch.Tensor, kind: torch.Tensor) -> None:
    """Blends images with black, their mean grey or their greys, or extrapolates away from these, in place.

    Args:
        planes: [channels, n, pixels] float32, integers in 0..255.
        factor: [n] float64; 1 changes nothing, 0 gives only the other image.
        kind: [n] 0 for brightness, 1 for contrast, 2 for saturation.
    """
    if len(planes) == 3:
        grey = (0.2989 * planes[0]).add_(0.587 * planes[1]).add_(0.114 * planes[2]).trunc_()
    else:
        grey = planes[0].clone()
        factor = torch.where(kind == _SATURATION, 1.0, factor)
    mean = grey.mean(dim=1, keepdim=True)
    rest = 1.0 - factor
    of_grey = torch.where(kind == _SATURATION, rest, 0.0).float()[:, None]
    of_mean = torch.where(kind == _CONTRAST, rest, 0.0).float()[:, None]
    other = grey.mul_(of_grey).add_(of_mean * mean)
    planes.mul_(factor.float()[:, None]).add_(other).clamp_(0, 255).trunc_()


def shifted_hue(planes: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Shifts the hue of every pixel in HSV.

    Args:
        planes: [3, n, pixels] floating point, integers in 0..255.
        shift: [n] fraction of the colour circle, between -1 and 1.

    Returns:
        A new tensor, integers in 0..255.
    """
    red, green, blue = planes
    value, chroma = planes.amax(dim=0), planes.amax(dim=0) - planes.amin(dim=0)
    divisor = chroma.clamp(min=1)  # grey has no hue: all differences are 0
    sector = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sector += 6 * shift.to(planes.dtype)[:, None]
    turned = []
    for offset in (5, 3, 1):
        distance = (sector + offset).remainder_(6)
        lost = torch.minimum(distance, 4 - distance).clamp_(0, 1)
        # As torchvision converts [0, 1] to pixels: 256 parts of nearly equal size, rounded down.
        turned.append(torch.addcmul(value, chroma, lost, value=-1).mul_(255.999 / 255).trunc_())
    return torch.stack(turned)


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
