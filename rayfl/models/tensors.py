"""The tensors of a model without PyTorch: names, places in the flat vector, and what is not in it.

Loads no PyTorch, because the server uses it too. Integer and boolean buffers travel beside the flat vector, each in its
own type: flags and counters (`initialised`, a code book's usage) decide what a network computes, but their mean over
clients makes no sense. Constants, which are the parameters that a phase does not train, travel once: with the plan of
the run, or when the phase begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    import torch


ALIGNMENT = 16
"""Floats. Slots start at multiples of 64 bytes: results of MKL can depend on the alignment of its inputs."""


NUM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Bytes of a value of each type that a parameter may have; what trains is float32."""


@dataclass(frozen=True)
class Slot:
    """The place of one parameter or buffer in the flat vector, or of a constant in the vector of constants.

    Attributes:
        name: Name in PyTorch (`conv1.weight`).
        offset: Start in the vector, in floats; a multiple of 16.
        shape: Shape in PyTorch.
        strides: Strides of the tensor in the vector, in its own values.
        is_parameter: Whether it is trained by gradient; False for buffers and frozen parameters.
        aliases: The other names of a tied tensor.
        dtype: Name of its type in PyTorch; only constants have another one than float32.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_parameter: bool
    aliases: tuple[str, ...] = ()
    dtype: str = "float32"

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
        floats = -(-self.size * NUM_BYTES[self.dtype] // NUM_BYTES["float32"])
        return self.offset + -(-floats // ALIGNMENT) * ALIGNMENT

    def array(self, vector: np.ndarray) -> np.ndarray:
        """As `view`, for a numpy array; a copy in float32 of bfloat16, which numpy does not have."""
        if self.dtype == "bfloat16":
            values = (vector[self.offset : self.end].view(np.uint16)[: self.size].astype(np.uint32) << 16).view(
                np.float32
            )
        elif self.dtype != "float32":
            values = vector[self.offset : self.end].view(self.dtype)[: self.size]
        else:
            values = vector[self.offset : self.offset + self.size]
        return as_strided(values, self.shape, [values.itemsize * stride for stride in self.strides])

    def write(self, vector: np.ndarray, values: np.ndarray) -> None:
        """Sets the values in a vector, rounded to the type of the slot.

        Args:
            vector: As for `array`, with this slot in it.
            values: The values in PyTorch's shape, of any floating-point type.
        """
        if self.dtype != "bfloat16":
            self.array(vector)[...] = values
            return
        bits = values.astype(np.float32).view(np.uint32)
        rounded = np.where(np.isnan(values), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        own = vector[self.offset : self.end].view(np.uint16)[: self.size]
        as_strided(own, self.shape, [own.itemsize * stride for stride in self.strides])[...] = rounded

    def view(self, vector: torch.Tensor) -> torch.Tensor:
        """Returns the values in PyTorch's shape, as a view into `vector` ([length of the flat vector])."""
        if self.dtype != "float32":
            import torch

            whole = vector[self.offset : self.end].view(getattr(torch, self.dtype))
            return whole[: self.size].as_strided(self.shape, self.strides)
        return vector[self.offset : self.offset + self.size].as_strided(self.shape, self.strides)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Quotes the first few names in alphabetical order, and gives the number of the others."""
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def taken_over(taken: Sequence[str], fresh: Sequence[str], not_used: Sequence[str]) -> str:
    """One line for users: "8 tensors taken, 2 fresh ('fc3.bias', 'fc3.weight')"."""
    others = {"fresh": fresh, "not used": not_used}
    differences = [f"{len(names)} {what} ({listed(names)})" for what, names in others.items() if names]
    return ", ".join([f"{len(taken)} tensors taken", *differences])


def followed(name: str, copies: Mapping[str, str]) -> str | None:
    """The name of the tensor that a tensor of a copy follows (`Network.copies`); None if it belongs to no copy."""
    for copy, original in copies.items():
        if name.startswith(f"{copy}."):
            return original + name.removeprefix(copy)
    return None


Discrete = Mapping[str, np.ndarray]
"""The values of a network's persistent integer and boolean buffers, by name; without batch norm's counters."""

STORED_PREFIX = "discrete/"
"""Prefix of their names where they are stored with other arrays."""


@dataclass(frozen=True)
class WholeModel:
    """A model that is more than its vector, as it is passed between processes.

    Attributes:
        vector: float32 [length of the model]: parameters, then floating-point buffers.
        discrete: The other buffers.
        constants: The memory of the constants, if they are known only since the phase began (`InitialModel.constants`);
            between processes only a reference to it.
    """

    vector: np.ndarray
    discrete: Discrete
    constants: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.vector.nbytes + sum(values.nbytes for values in self.discrete.values())


SentModel = np.ndarray | WholeModel
"""A model between processes: just its vector, unless it has integer or boolean buffers or brings constants along."""


def joined(vector: np.ndarray, discrete: Discrete, constants: np.ndarray | None = None) -> SentModel:
    """Returns a model to pass on; arguments as for `WholeModel`."""
    return vector if not discrete and constants is None else WholeModel(vector, discrete, constants)


def split(model: SentModel) -> tuple[np.ndarray, Discrete]:
    """Returns the vector and the other buffers of a model."""
    return (model.vector, model.discrete) if isinstance(model, WholeModel) else (model, {})


def constants_of(model: SentModel) -> np.ndarray | None:
    """Returns the constants that a model brings along; see `WholeModel`."""
    return model.constants if isinstance(model, WholeModel) else None


def copied(discrete: Discrete) -> Discrete:
    """Copies buffers, which may be views of memory that is shared by processes."""
    return {name: np.array(values) for name, values in discrete.items()}


def for_storage(discrete: Discrete) -> dict[str, np.ndarray]:
    """Returns the buffers under the names that `taken_from` finds among other arrays."""
    return {f"{STORED_PREFIX}{name}": values for name, values in discrete.items()}


def taken_from(arrays: dict[str, np.ndarray]) -> Discrete:
    """Removes the buffers from stored arrays, and returns them."""
    names = [name for name in arrays if name.startswith(STORED_PREFIX)]
    return {name.removeprefix(STORED_PREFIX): arrays.pop(name) for name in names}


def all_finite(values: torch.Tensor) -> bool:
    """Whether every value is finite, judged by the extremes (NaN if any value is), ten times faster than `isfinite`."""
    import torch  # imported here because the server adds up answers without PyTorch

    return not values.numel() or all(map(math.isfinite, torch.stack(values.aminmax()).tolist()))  # one GPU sync
