"""The place of a tensor in the flat vector. Loads no PyTorch, because the server uses it too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16
"""Floats. Slots start at multiples of 64 bytes: results of MKL can depend on the alignment of its inputs."""


@dataclass(frozen=True)
class Slot:
    """The place of one parameter or buffer in the flat vector.

    Attributes:
        name: Name in PyTorch (`conv1.weight`).
        offset: Start in the vector, in floats; a multiple of 16.
        shape: Shape in PyTorch.
        strides: Strides of the tensor in the vector, in floats.
        is_parameter: Whether it is trained by gradient; False for buffers and frozen parameters.
        aliases: The other names of a tied tensor.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_parameter: bool
    aliases: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, including the first one."""
        return (self.name, *self.aliases)

    @cached_property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @cached_property
    def end(self) -> int:
        """Start of the next slot: offset plus size, rounded up to the alignment."""
        return self.offset + -(-self.size // ALIGNMENT) * ALIGNMENT

    def array(self, vector: np.ndarray) -> np.ndarray:
        """As `view`, for a numpy array."""
        values = vector[self.offset : self.offset + self.size]
        return as_strided(values, self.shape, [vector.itemsize * stride for stride in self.strides])

    def view(self, vector: torch.Tensor) -> torch.Tensor:
        """Returns the values in PyTorch's shape, as a view into `vector` ([length of the flat vector])."""
        return vector[self.offset : self.offset + self.size].as_strided(self.shape, self.strides)
