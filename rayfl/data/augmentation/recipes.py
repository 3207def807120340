"""The papers' augmentations of training images, by name: what their code applies, in its order.

Those that pad before they normalise pad with black, and are for one `data.normalize` alone.
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
    """FedDyn and FedBug: flip; with probability 1/2 a crop from 4 pixels of zeros around the normalised image."""
    return Compose((Flip(), Crop(probability=0.5)))


def moon_cifar10() -> Compose:
    """MOON and NIID-Bench: a crop from 4 mirrored pixels, flip. (MOON's brightness jitter has strength 0.)"""
    return Compose((Crop(mode="reflect"), Flip()))


def moon_cifar100() -> Compose:
    """MOON and NIID-Bench, normalised as `moon_cifar100`: a crop from 4 black pixels, flip, rotation by 15 degrees."""
    black = _black("moon_cifar100")
    return Compose((Crop(fill=black), Flip(), Rotate(fill=black)), "moon_cifar100")


def feddecorr_cifar10() -> Compose:
    """FedDecorr, without its optional AutoAugment, normalised as `moon_cifar10`: a crop from 4 black pixels, flip."""
    return Compose((Crop(fill=_black("moon_cifar10")), Flip()), "moon_cifar10")


def feddecorr_cifar100() -> Compose:
    """FedDecorr, without its optional AutoAugment, normalised as `moon_cifar100`: a crop from 4 black pixels, flip."""
    return Compose((Crop(fill=_black("moon_cifar100")), Flip()), "moon_cifar100")


def feddecorr_cifar_autoaugment() -> Compose:
    """FedDecorr with AutoAugment, of CIFAR-10 and CIFAR-100 alike: a crop from 4 black pixels, flip, the policy."""
    return Compose((Crop(), Flip(), AutoAugmentCIFAR10()))


def niid_bench_tiny_imagenet() -> Compose:
    """NIID-Bench, of images of 32 x 32, normalised as `tiny_imagenet`: a crop from 4 black pixels, flip, rotation."""
    black = _black("tiny_imagenet")
    return Compose((Crop(fill=black), Flip(), Rotate(fill=black)), "tiny_imagenet")


def fedexp_cifar() -> Compose:
    """FedExP: a crop from 4 pixels of zeros around the normalised image, flip; one draw of each for a whole batch."""
    return Compose((Crop(per="batch"), Flip(per="batch")))


def fps_cifar() -> Compose:
    """FPS: 2 pixels of padding, flip, crop. The paper says neither the padding's colour nor the normalisation."""
    return Compose((Flip(), Crop(padding=2)))


def fps_images() -> Compose:
    """FPS on all but CIFAR: a random part of the image scaled to its size, flip."""
    return Compose((ResizedCrop(), Flip()))


def simsiam() -> Compose:
    """SimSiam, as FPS applies it: a crop of a fifth of the image or more, scaled; colours, grey, blur, flip."""
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8)
    return Compose((ResizedCrop((0.2, 1.0)), jitter, Grayscale(0.2), GaussianBlur(5, (0.1, 2.0), 0.5), Flip()))


def orchestra_a() -> Compose:
    """Orchestra's first view: a crop of half of the image or more, scaled; flip, colours, grey, blur."""
    return Compose((*_orchestra(), GaussianBlur(3, (0.1, 2.0), 0.5)))


def orchestra_b() -> Compose:
    """Orchestra's second view: as the first, seldom blurred, but solarised with probability 0.2."""
    return Compose((*_orchestra(), GaussianBlur(3, (0.1, 2.0), 0.1), Solarize(probability=0.2)))


def _orchestra() -> tuple[Augmentation, ...]:
    jitter = ColorJitter(0.4, 0.4, 0.2, 0.1, probability=0.8)
    return ResizedCrop((0.5, 1.0), interpolation="bicubic"), Flip(), jitter, Grayscale(0.2)


def _black(normalization: str) -> Fill:
    """What a pixel of 0 is after normalisation."""
    mean, std = NORMALIZATIONS[normalization]
    return tuple(-m / s for m, s in zip(mean, std, strict=True))
