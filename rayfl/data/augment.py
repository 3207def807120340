"""Augmentation of a batch: one draw per sample, no loop over samples.

All draws come from a numpy generator on the CPU, so CPU and GPU augment alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch.nn import functional

from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class Flip:
    """Mirrors each image left to right with the given probability."""

    probability: Annotated[float, Field(ge=0, le=1)] = 0.5

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        mirrored = torch.from_numpy(rng.random(len(x)) < self.probability).to(x.device)
        return torch.where(mirrored[:, None, None, None], x.flip(2), x)


@dataclass(frozen=True)
class Crop:
    """Pads each image on all sides and cuts a window of the original size at a random place.

    padding: pixels. mode: what the border is made of, "zeros" (of the normalised image, as FedDyn and FedBug
    pad) or "reflect" (the image mirrored at its outermost pixels, as MOON and NIID-Bench pad CIFAR-10).

    Raises:
        ScenarioError: on the first batch, where the images are too small to be mirrored that far.
    """

    padding: PositiveInt = 4
    mode: Literal["zeros", "reflect"] = "zeros"

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """x: [n, height, width, channels] float, contiguous; returns a new tensor of the same kind."""
        n, height, width, channels = x.shape
        top, left = rng.integers(0, 2 * self.padding + 1, (2, n, 1))
        padded = self._pad(x)
        padded_height, padded_width = padded.shape[1:3]
        # Every row of every window is one run of width * channels values: gathering runs is nine times faster
        # than indexing pixels.
        image_rows = np.arange(n)[:, None] * padded_height + top + np.arange(height)
        starts = torch.from_numpy((image_rows * padded_width + left).ravel()).to(x.device)
        runs = padded.view(-1).unfold(0, width * channels, channels)
        return runs.index_select(0, starts).view(n, height, width, channels)

    def _pad(self, x: torch.Tensor) -> torch.Tensor:
        p = self.padding
        if self.mode == "zeros":
            return functional.pad(x, (0, 0, p, p, p, p))
        height, width = x.shape[1:3]
        if p >= min(height, width):
            raise ScenarioError(
                f"data.augment: 'crop' with padding {p} and mode 'reflect' needs images larger than {p} pixels, "
                f"these are {height} x {width}"
            )
        return x.index_select(1, _mirrored(height, p, x.device)).index_select(2, _mirrored(width, p, x.device))


def _mirrored(size: int, padding: int, device: torch.device) -> torch.Tensor:
    """[size + 2 * padding] int64: the pixel that each place of a padded line shows, mirrored at both ends."""
    place = torch.arange(-padding, size + padding, device=device)
    return (size - 1) - ((size - 1) - place.abs()).abs()
