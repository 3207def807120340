"""Transforms of torchvision's `transforms.v2`, which draw from the PyTorch generator."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from rayfl.errors import ScenarioError
from rayfl.user_code import report_as_theirs

if TYPE_CHECKING:
    from torchvision.transforms import v2

Per = Literal["sample", "batch"]


class TorchvisionTransform:
    """Applies a transform before scaling and normalisation, with the random numbers of the client.

    A transform draws once per call. It is therefore called for each image, unless all images of a batch share a draw.
    The PyTorch generators are seeded from `rng` for each batch and then restored, so dropout and other clients are not
    affected.

    Args:
        transform: The transform; it must keep shape and dtype.
        where: Key path and name in the scenario, for errors.
        per: Whether to draw for every sample or once per batch.
    """

    needs_pixels = True

    def __init__(self, transform: v2.Transform, where: str, per: Per = "sample") -> None:
        self._transform, self._where, self._per = transform, where, per

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Transforms a batch.

        Args:
            x: [n, height, width, channels] uint8.
            rng: Source of the seed, drawn once per batch.

        Returns:
            A new tensor of the same shape, dtype and device, contiguous.

        Raises:
            ScenarioError: The transform raised an exception, or changed shape or dtype.
        """
        images = x.permute(0, 3, 1, 2)
        seed = int(rng.integers(2**63))
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if x.device.type == "cuda":
                torch.cuda.manual_seed(seed)
            if self._per == "batch":
                found = self._transformed(images)
            else:
                found = torch.stack([self._transformed(image) for image in images])
        return found.permute(0, 2, 3, 1).contiguous()

    def _transformed(self, images: torch.Tensor) -> torch.Tensor:
        try:
            found: Any = self._transform(images)
        except (Exception, SystemExit) as error:
            raise ScenarioError(report_as_theirs(error, self._where)) from None
        if not isinstance(found, torch.Tensor):
            raise ScenarioError(f"{self._where} returned an object of type {type(found).__name__}, not an image")
        if (found.shape, found.dtype) != (images.shape, images.dtype):
            raise ScenarioError(
                f"{self._where} returned {_in_words(found)} for {_in_words(images)}; a transform must keep the shape "
                "and dtype of images, [channels, height, width] uint8"
            )
        return found


def is_transform(target: Any) -> bool:
    """Whether the object is a transform of torchvision's `transforms.v2`, or such a class."""
    if (
        "torchvision.transforms.v2" not in sys.modules
    ):  # avoids an import of over a second; without it, no transform exists
        return False
    from torchvision.transforms import v2

    return isinstance(target, v2.Transform) or (inspect.isclass(target) and issubclass(target, v2.Transform))


def _in_words(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
