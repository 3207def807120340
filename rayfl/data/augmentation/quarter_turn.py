"""Rotations by multiples of 90 degrees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rayfl.data.augmentation.augmentation import Augmentation
from rayfl.errors import ScenarioError


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
