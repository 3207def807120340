"""The papers' constants for `data.normalize`, by name."""

from __future__ import annotations

NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "feddyn_cifar10": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    "feddyn_cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "moon_cifar10": ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "moon_cifar100": (
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    "tiny_imagenet": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Mean and standard deviation of each channel, for pixels in [0, 1].

feddyn_cifar10: FedDyn and FedBug, and FedExP on CIFAR-100 as well. feddyn_cifar100: FedDyn and FedBug.
moon_cifar10: MOON and FedDecorr. moon_cifar100: MOON, NIID-Bench and FedDecorr.
tiny_imagenet: FedBug, MOON, NIID-Bench and FedDecorr. imagenet: FPS on everything except CIFAR.
Taken from the code of each; for FPS, whose code does not contain them, from the paper and torchvision's constants.
"""
