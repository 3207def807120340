"""Base class of augmentations: random numbers drawn on the CPU, and tensor operations that apply them on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from rayfl.errors import ScenarioError

CANNOT_MOVE = (
    "may move pixels but cannot move label maps with them; choose another, or write an Augmentation that has "
    "move_labels, or whose moves_pixels is False"
)

Probability = Annotated[float, Field(ge=0, le=1)]


class Augmentation(ABC):
    """Changes a batch of training images at random.

    Drawing and applying are separate, so the draws of many batches reach the device in one copy. All draws come from a
    numpy generator on the CPU, so results on CPU and GPU agree.

    Images are [n, height, width, channels], contiguous: float32 in [0, 1], or normalised if the scenario normalises.
    Augmentations that set `needs_pixels`, and those before them, get uint8 in 0..255.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from rayfl.data import Augmentation
        >>> class Darken(Augmentation):
        ...     moves_pixels = False
        ...     def draw(self, shape, rng):
        ...         return rng.uniform(0.5, 1.0, (1, shape[0]))
        ...     def apply(self, x, draws):
        ...         return x * draws[0].to(x.dtype)[:, None, None, None]
        >>> Darken()(torch.ones(4, 28, 28, 1), np.random.default_rng(0)).shape
        torch.Size([4, 28, 28, 1])
    """

    @property
    def num_draws(self) -> int:
        """Number of random numbers per image."""
        return 1

    @property
    def needs_pixels(self) -> bool:
        """Whether it requires uint8 images, before scaling and normalisation."""
        return False

    @property
    def moves_pixels(self) -> bool:
        """Whether label maps must move with the images, by `move_labels`.

        True by default, so labels never stay behind; augmentations that only change colours return False.
        """
        return True

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result for images of this size."""
        return height, width

    @abstractmethod
    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        """Draws the random numbers of one batch.

        Args:
            shape: Shape of the batch, [n, height, width, channels].
            rng: Source of all draws.

        Returns:
            [num_draws, n] float64.
        """

    @abstractmethod
    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augments a batch.

        Args:
            x: The batch; it must not be modified.
            draws: The result of `draw` for a batch of this shape, on the device of `x`.

        Returns:
            A new tensor with the dtype and device of `x`, contiguous, with the same number of images and channels
            and the size `output_size`.
        """

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        """Moves label maps like `apply` moves the images, to the nearest pixel.

        Args:
            labels: [n, height, width], the size of the images; they must not be modified.
            draws: The draws for the images.
            ignored: The label of pixels outside the image; None if the task has none.

        Returns:
            A new tensor of `output_size` and the same dtype and device, contiguous.

        Raises:
            ScenarioError: The augmentation cannot move labels, or uncovers pixels without a label.
        """
        raise ScenarioError(f"data.augment: {type(self).__name__} {CANNOT_MOVE}")

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Draws and applies."""
        n, height, width, channels = x.shape
        return self.apply(x, torch.from_numpy(self.draw((n, height, width, channels), rng)).to(x.device))


class Compose(Augmentation):
    """Augmentations applied one after another.

    Args:
        steps: The augmentations, in order of drawing and application.
        normalization: Name of the `data.normalize` whose black the steps fill with; None if they do not.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from rayfl.data import Augmentation, Compose
        >>> class Shift(Augmentation):
        ...     moves_pixels = False
        ...     def draw(self, shape, rng):
        ...         return rng.uniform(0.0, 0.1, (1, shape[0]))
        ...     def apply(self, x, draws):
        ...         return x + draws[0].to(x.dtype)[:, None, None, None]
        >>> twice = Compose((Shift(), Shift()))
        >>> twice.num_draws
        2
        >>> twice(torch.zeros(3, 8, 8, 1), np.random.default_rng(0)).shape
        torch.Size([3, 8, 8, 1])
    """

    def __init__(self, steps: tuple[Augmentation, ...], normalization: str | None = None) -> None:
        self.steps, self.normalization = steps, normalization

    @property
    def num_draws(self) -> int:
        return sum(step.num_draws for step in self.steps)

    @property
    def needs_pixels(self) -> bool:
        return any(step.needs_pixels for step in self.steps)

    @property
    def moves_pixels(self) -> bool:
        return any(step.moves_pixels for step in self.steps)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        for step in self.steps:
            height, width = step.output_size(height, width)
        return height, width

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return drawn_in_turn(self.steps, shape, rng)

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        first = 0
        for step in self.steps:
            x = step.apply(x, draws[first : first + step.num_draws])
            first += step.num_draws
        return x

    def move_labels(self, labels: torch.Tensor, draws: torch.Tensor, ignored: int | None) -> torch.Tensor:
        first = 0
        for step in self.steps:
            if step.moves_pixels:
                labels = step.move_labels(labels, draws[first : first + step.num_draws], ignored)
            first += step.num_draws
        return labels


def moves_no_labels(step: object) -> bool:
    """Whether a step may move pixels but does not define how label maps follow."""
    if isinstance(step, Compose):
        return any(moves_no_labels(inner) for inner in step.steps)
    if not isinstance(step, Augmentation):
        return True
    return step.moves_pixels and type(step).move_labels is Augmentation.move_labels


def outside(ignored: int | None, name: str) -> tuple[float, ...]:
    """The `fill` of label maps.

    Raises:
        ScenarioError: The task has no ignored label.
    """
    if ignored is None:
        raise ScenarioError(
            f"data.augment: '{name}' uncovers pixels that have no label, but the task has no ignored label; "
            "choose an augmentation that stays inside the image"
        )
    return (float(ignored),)


def drawn_in_turn(
    steps: Iterable[Augmentation], shape: tuple[int, int, int, int], rng: np.random.Generator
) -> np.ndarray:
    """The draws of consecutive steps, each for the image size that the previous step produces."""
    n, height, width, channels = shape
    draws = []
    for step in steps:
        draws.append(step.draw((n, height, width, channels), rng))
        height, width = step.output_size(height, width)
    return np.concatenate(draws)
