"""The papers' augmentations of training images, by name: what their code applies, in its order.

Those that pad before they normalise pad with black, and are for one `data.normalize` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rayfl.config.normalizations import NORMALIZATIONS
from rayfl.data.augment import Augmentation, Crop, Fill, Flip, Rotate


@dataclass(frozen=True)
class InTurn:
    """Augmentations one after another; normalization: the name of the `data.normalize` whose black they fill with."""

    steps: tuple[Augmentation, ...]
    normalization: str | None = None

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        for step in self.steps:
            x = step(x, rng)
        return x


def feddyn_cifar() -> InTurn:
    """FedDyn and FedBug: flip; with probability 1/2 a crop from 4 pixels of zeros around the normalised image."""
    return InTurn((Flip(), Crop(probability=0.5)))


def moon_cifar10() -> InTurn:
    """MOON and NIID-Bench: a crop from 4 mirrored pixels, flip. (MOON's brightness jitter has strength 0.)"""
    return InTurn((Crop(mode="reflect"), Flip()))


def moon_cifar100() -> InTurn:
    """MOON and NIID-Bench, normalised as `moon_cifar100`: a crop from 4 black pixels, flip, rotation by 15 degrees."""
    black = _black("moon_cifar100")
    return InTurn((Crop(fill=black), Flip(), Rotate(fill=black)), "moon_cifar100")


def feddecorr_cifar10() -> InTurn:
    """FedDecorr, without its optional AutoAugment, normalised as `moon_cifar10`: a crop from 4 black pixels, flip."""
    return InTurn((Crop(fill=_black("moon_cifar10")), Flip()), "moon_cifar10")


def feddecorr_cifar100() -> InTurn:
    """FedDecorr, without its optional AutoAugment, normalised as `moon_cifar100`: a crop from 4 black pixels, flip."""
    return InTurn((Crop(fill=_black("moon_cifar100")), Flip()), "moon_cifar100")


def fedexp_cifar() -> InTurn:
    """FedExP: a crop from 4 pixels of zeros around the normalised image, flip; one draw of each for a whole batch."""
    return InTurn((Crop(per="batch"), Flip(per="batch")))


def fps_cifar() -> InTurn:
    """FPS: 2 pixels of padding, flip, crop. The paper says neither the padding's colour nor the normalisation."""
    return InTurn((Flip(), Crop(padding=2)))


def _black(normalization: str) -> Fill:
    """What a pixel of 0 is after normalisation."""
    mean, std = NORMALIZATIONS[normalization]
    return tuple(-m / s for m, s in zip(mean, std, strict=True))
