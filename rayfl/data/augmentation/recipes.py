"""Augmentations of training images from papers, by name, in the order of their code.

Those that pad before normalising pad with black and require a specific `data.normalize`.
"""

from __future__ import annotations

from rayfl.config.normalizations import NORMALIZATIONS
from rayfl.data.augmentation.augmentation import Augmentation, Compose
from rayfl.data.augmentation.autoaugment import AutoAugmentCIFAR10
from rayfl.data.augmentation.color_jitter import ColorJitter
from rayfl.data.augmentation.gaussian_blur import GaussianBlur
from rayfl.data.augmentation.geometric import Crop, Fill, Flip, Rotate
from rayfl.data.augmentation.grayscale import Grayscale
from rayfl.data.augmentation.resized_crop import ResizedCrop
from rayfl.data.augmentation.solarize import Solarize


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
