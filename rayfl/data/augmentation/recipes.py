"""Augmentations of training images from papers, by name, in the order of their code; among them AutoAugment.

Those that pad before normalising pad with black and require a specific `data.normalize`. AutoAugment (its policy for
CIFAR-10) is vectorised: every image of a batch has its own operations. Cubuk et al., "AutoAugment: Learning
Augmentation Strategies from Data", CVPR 2019, table 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rayfl.config.data import NORMALIZATIONS
from rayfl.data.augmentation.augmentation import Augmentation, Compose, outside
from rayfl.data.augmentation.geometric import Crop, Fill, Flip, Rotate, sampled
from rayfl.data.augmentation.photometric import ColorJitter, GaussianBlur, Grayscale, Solarize, luma
from rayfl.data.augmentation.resized_crop import ResizedCrop


class _Operation(NamedTuple):
    """An operation, its probability, and its level from 0 to 9, if it has one."""

    name: str
    probability: float
    level: int = 0


_Op = _Operation
POLICY = (
    (_Op("Invert", 0.1), _Op("Contrast", 0.2, 6)),
    (_Op("Rotate", 0.7, 2), _Op("TranslateX", 0.3, 9)),
    (_Op("Sharpness", 0.8, 1), _Op("Sharpness", 0.9, 3)),
    (_Op("ShearY", 0.5, 8), _Op("TranslateY", 0.7, 9)),
    (_Op("AutoContrast", 0.5), _Op("Equalize", 0.9)),
    (_Op("ShearY", 0.2, 7), _Op("Posterize", 0.3, 7)),
    (_Op("Color", 0.4, 3), _Op("Brightness", 0.6, 7)),
    (_Op("Sharpness", 0.3, 9), _Op("Brightness", 0.7, 9)),
    (_Op("Equalize", 0.6), _Op("Equalize", 0.5)),
    (_Op("Contrast", 0.6, 7), _Op("Sharpness", 0.6, 5)),
    (_Op("Color", 0.7, 7), _Op("TranslateX", 0.5, 8)),
    (_Op("Equalize", 0.3), _Op("AutoContrast", 0.4)),
    (_Op("TranslateY", 0.4, 3), _Op("Sharpness", 0.2, 6)),
    (_Op("Brightness", 0.9, 6), _Op("Color", 0.2, 8)),
    (_Op("Solarize", 0.5, 2), _Op("Invert", 0.0)),
    (_Op("Equalize", 0.2), _Op("AutoContrast", 0.6)),
    (_Op("Equalize", 0.2), _Op("Equalize", 0.6)),
    (_Op("Color", 0.9, 9), _Op("Equalize", 0.6)),
    (_Op("AutoContrast", 0.8), _Op("Solarize", 0.2, 8)),
    (_Op("Brightness", 0.1, 3), _Op("Color", 0.7, 0)),
    (_Op("Solarize", 0.4, 5), _Op("AutoContrast", 0.9)),
    (_Op("TranslateY", 0.9, 9), _Op("TranslateY", 0.7, 9)),
    (_Op("AutoContrast", 0.9), _Op("Solarize", 0.8, 3)),
    (_Op("Equalize", 0.8), _Op("Invert", 0.1)),
    (_Op("TranslateY", 0.7, 9), _Op("AutoContrast", 0.9)),
)
"""25 pairs of operations; each image gets one pair."""

RANGES = {
    "Rotate": (-30.0, 30.0),
    "ShearY": (-0.3, 0.3),
    "TranslateX": (-150 / 331, 150 / 331),
    "TranslateY": (-150 / 331, 150 / 331),
    "Posterize": (4.0, 8.0),
    "Solarize": (0.0, 256.0),
    "Brightness": (0.1, 1.9),
    "Color": (0.1, 1.9),
    "Contrast": (0.1, 1.9),
    "Sharpness": (0.1, 1.9),
}
"""Ranges of magnitudes: level k is the (k + 1)-th tenth of the range."""

NAMES = ("Identity", "Invert", "AutoContrast", "Equalize", *RANGES)
_NUMBER = {name: number for number, name in enumerate(NAMES)}


@dataclass(frozen=True)
class AutoAugmentCIFAR10(Augmentation):
    """Applies one of the 25 pairs of operations of the policy to every image.

    Magnitudes follow the code of FedDecorr (and the code it was ported from): uniform in a tenth of a range from one
    extreme to the other, whereas torchvision uses fixed magnitudes with a random sign; its ShearY moves pixels along
    rows. Operations are those of torchvision. Images move about their centre to the nearest pixel, with black for
    uncovered pixels, whereas that code interpolates with splines.
    """

    @property
    def num_draws(self) -> int:
        return 2 * _NUMBERS

    @property
    def needs_pixels(self) -> bool:
        return True

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        n = shape[0]
        pair = rng.integers(len(POLICY), size=n)
        chance, within = rng.random((2, n)), rng.random((2, n))
        return np.concatenate([self._draw_one(pair, place, chance[place], within[place], shape) for place in (0, 1)])

    def _draw_one(
        self, pair: np.ndarray, place: int, chance: np.ndarray, within: np.ndarray, shape: tuple[int, int, int, int]
    ) -> np.ndarray:
        choices = [operations[place] for operations in POLICY]
        applied = chance < np.array([choice.probability for choice in choices])[pair]
        number = np.where(applied, np.array([_NUMBER[choice.name] for choice in choices])[pair], 0)
        low, high = np.array([RANGES.get(choice.name, (0.0, 0.0)) for choice in choices])[pair].T
        level = np.array([choice.level for choice in choices])[pair]
        return operation(number, low + (high - low) * (level + within) / 10, shape)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.uint8:
            raise TypeError(f"AutoAugment works on pixels, uint8, not on {x.dtype}")
        # Operations that an image does not have leave it unchanged.
        for numbers in draws.split(_NUMBERS):  # type: ignore[no-untyped-call]
            x = _blended(_mapped(_moved(x, numbers[2:], (0.0,)), numbers[0], numbers[1]), numbers[0], numbers[1])
        return x

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        fill, moved = outside(ignored, "autoaugment_cifar10"), labels[..., None]
        for numbers in draws.split(_NUMBERS):  # type: ignore[no-untyped-call]
            moved = _moved(moved, numbers[2:], fill)
        return moved[..., 0]


_NUMBERS = 8
"""Numbers per operation: its index, its magnitude, and the source of the row and column of a pixel, 3 each."""


def operation(number: np.ndarray, magnitude: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray:
    """[8, n] float64: the numbers that describe one operation on each of n images.

    Args:
        number: [n] indices into `NAMES`.
        magnitude: [n] in the units of `RANGES`.
        shape: Shape of the batch.
    """
    _, height, width, _ = shape
    numbers = np.zeros((_NUMBERS, len(number)))
    numbers[0], numbers[1], numbers[2], numbers[6] = number, magnitude, 1.0, 1.0
    turned = number == _NUMBER["Rotate"]
    cos, sin = np.cos(np.deg2rad(magnitude)), np.sin(np.deg2rad(magnitude))
    for place, value in ((2, cos), (3, -sin), (5, sin), (6, cos)):
        numbers[place, turned] = value[turned]
    for name, place, scale in (("TranslateY", 4, height), ("ShearY", 5, 1), ("TranslateX", 7, width)):
        chosen = number == _NUMBER[name]
        numbers[place, chosen] = magnitude[chosen] * scale
    return numbers


def _moved(x: torch.Tensor, matrix: torch.Tensor, fill: Fill) -> torch.Tensor:
    """Transforms each image by its own affine map from pixels to their source, about the centre."""
    _, height, width, _ = x.shape
    middle, centre = (height - 1) / 2, (width - 1) / 2
    down = torch.arange(height, dtype=torch.float64, device=x.device)[:, None] - middle
    right = torch.arange(width, dtype=torch.float64, device=x.device) - centre
    row_down, row_right, row, column_down, column_right, column = matrix[..., None, None]
    rows = (row_down * down + row_right * right + row + middle).round().long()
    columns = (column_down * down + column_right * right + column + centre).round().long()
    return sampled(x, rows, columns, fill)


def _mapped(x: torch.Tensor, number: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Operations defined by a table of values, per image or per channel."""
    n, _, _, channels = x.shape
    value = torch.arange(256, device=x.device)
    pixels = x.view(n, -1, channels).long()
    counts = pixels.new_zeros(n, 256, channels).scatter_add_(1, pixels, torch.ones_like(pixels))
    number, magnitude = number[:, None, None], magnitude[:, None, None]
    every = value[None, :, None]
    table = every.expand(n, 256, channels)
    table = torch.where(number == _NUMBER["Invert"], 255 - every, table)
    inverted_above = torch.where(every >= magnitude, 255 - every, every)
    table = torch.where(number == _NUMBER["Solarize"], inverted_above, table)
    step = (2.0 ** (8 - magnitude.round())).long().clamp(min=1)
    table = torch.where(number == _NUMBER["Posterize"], every - every % step, table)
    table = torch.where(number == _NUMBER["AutoContrast"], _stretched(pixels, every), table)
    table = torch.where(number == _NUMBER["Equalize"], _equalized(counts, pixels, every), table)
    return table.gather(1, pixels).to(torch.uint8).view_as(x)


def _stretched(pixels: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[n, 256, channels]: stretches each channel from its darkest and brightest value to 0..255."""
    low, high = pixels.amin(1, keepdim=True), pixels.amax(1, keepdim=True)
    scale = 255 / (high - low).clamp(min=1).float()
    stretched = ((value.float() - low.float()) * scale).clamp(0, 255).long()
    return torch.where(high > low, stretched, value)


def _equalized(counts: torch.Tensor, pixels: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[n, 256, channels]: equalises the histogram of each channel."""
    brightest = counts.gather(1, pixels.amax(1, keepdim=True))
    step = (pixels.shape[1] - brightest) // 255
    before = counts.cumsum(1) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(0, 255)
    table[:, 0] = 0
    return torch.where(step > 0, table, value)


def _blended(x: torch.Tensor, number: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
    """Operations that interpolate from a degenerate image to x, or beyond if the magnitude is above 1."""
    number, magnitude = number[:, None, None, None], magnitude[:, None, None, None]
    grey = luma(x).float()
    mean = grey.sum((1, 2, 3), keepdim=True) / grey[0].numel()
    degenerate = torch.zeros_like(x, dtype=torch.float32)
    degenerate = torch.where(number == _NUMBER["Color"], grey, degenerate)
    degenerate = torch.where(number == _NUMBER["Contrast"], mean, degenerate)
    degenerate = torch.where(number == _NUMBER["Sharpness"], _blurred(x).float(), degenerate)
    blends = number >= _NUMBER["Brightness"]
    if x.shape[-1] == 1:  # has no colours; torchvision's luma would round
        blends &= number != _NUMBER["Color"]
    ratio = torch.where(blends, magnitude, 1.0)
    return (ratio.float() * x + (1.0 - ratio).float() * degenerate).clamp(0, 255).to(torch.uint8)


def _blurred(x: torch.Tensor) -> torch.Tensor:
    """Every inner pixel becomes the mean of its neighbours, with weight 1, and itself, with weight 5."""
    _, height, width, _ = x.shape
    blurred = x.long()
    if height <= 2 or width <= 2:
        return blurred
    whole = blurred.clone()
    total = 4 * whole[:, 1:-1, 1:-1]
    for down in range(3):
        for right in range(3):
            total = total + whole[:, down : height - 2 + down, right : width - 2 + right]
    blurred[:, 1:-1, 1:-1] = (2 * total + 13) // 26  # to the nearest; 13 is odd, so there are no halves
    return blurred


def feddyn_cifar() -> Compose:
    """FedDyn and FedBug: flip; with probability 1/2, 4 pixels of zero padding after normalisation, then a crop."""
    return Compose((Flip(), Crop(probability=0.5)))


def moon_cifar10() -> Compose:
    """MOON and NIID-Bench: 4 pixels of mirror padding, crop, flip. (MOON's brightness jitter has strength 0.)"""
    return Compose((Crop(mode="reflect"), Flip()))


def moon_cifar100() -> Compose:
    """MOON and NIID-Bench, normalised as `moon_cifar100`: 4 pixels of black padding, crop, flip, rotation by 15°."""
    black = _black("moon_cifar100")
    return Compose((Crop(fill=black), Flip(), Rotate(fill=black)), "moon_cifar100")


def feddecorr_cifar10() -> Compose:
    """FedDecorr without AutoAugment, normalised as `moon_cifar10`: 4 pixels of black padding, crop, flip."""
    return Compose((Crop(fill=_black("moon_cifar10")), Flip()), "moon_cifar10")


def feddecorr_cifar100() -> Compose:
    """FedDecorr without AutoAugment, normalised as `moon_cifar100`: 4 pixels of black padding, crop, flip."""
    return Compose((Crop(fill=_black("moon_cifar100")), Flip()), "moon_cifar100")


def feddecorr_cifar_autoaugment() -> Compose:
    """FedDecorr with AutoAugment, for CIFAR-10 and CIFAR-100: 4 pixels of black padding, crop, flip, the policy."""
    return Compose((Crop(), Flip(), AutoAugmentCIFAR10()))


def niid_bench_tiny_imagenet() -> Compose:
    """NIID-Bench for 32 x 32 images, normalised as `tiny_imagenet`: 4 pixels of black padding, crop, flip, rotation."""
    black = _black("tiny_imagenet")
    return Compose((Crop(fill=black), Flip(), Rotate(fill=black)), "tiny_imagenet")


def fedexp_cifar() -> Compose:
    """FedExP: 4 pixels of zero padding after normalisation, crop, flip; one draw of each per batch."""
    return Compose((Crop(per="batch"), Flip(per="batch")))


def fps_cifar() -> Compose:
    """FPS: 2 pixels of padding, flip, crop. The paper gives neither the colour of the padding nor the normalisation."""
    return Compose((Flip(), Crop(padding=2)))


def fps_images() -> Compose:
    """FPS on data other than CIFAR: a random part of the image scaled to full size, flip."""
    return Compose((ResizedCrop(), Flip()))


def simsiam() -> Compose:
    """SimSiam as used by FPS: a scaled crop of at least a fifth of the image, colour jitter, grey, blur, flip."""
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8)
    return Compose((ResizedCrop((0.2, 1.0)), jitter, Grayscale(0.2), GaussianBlur(5, (0.1, 2.0), 0.5), Flip()))


def orchestra_a() -> Compose:
    """First view of Orchestra: a scaled crop of at least half of the image, flip, colour jitter, grey, blur."""
    return Compose((*_orchestra(), GaussianBlur(3, (0.1, 2.0), 0.5)))


def orchestra_b() -> Compose:
    """Second view of Orchestra: like the first, but rarely blurred, and solarised with probability 0.2."""
    return Compose((*_orchestra(), GaussianBlur(3, (0.1, 2.0), 0.1), Solarize(probability=0.2)))


def _orchestra() -> tuple[Augmentation, ...]:
    jitter = ColorJitter(0.4, 0.4, 0.2, 0.1, probability=0.8)
    return ResizedCrop((0.5, 1.0), interpolation="bicubic"), Flip(), jitter, Grayscale(0.2)


def _black(normalization: str) -> Fill:
    """The value of a black pixel after normalisation."""
    mean, std = NORMALIZATIONS[normalization]
    return tuple(-m / s for m, s in zip(mean, std, strict=True))
