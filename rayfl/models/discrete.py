"""Integer and boolean buffers, which travel beside the flat vector, each in its own type.

Flags and counters (`initialised`, a code book's usage) decide what a network computes, but their mean over clients
makes no sense, so they are not part of the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Discrete = Mapping[str, np.ndarray]
"""The values of a network's persistent integer and boolean buffers, by name; without batch norm's counters."""

STORED_PREFIX = "discrete/"
"""Prefix of their names where they are stored with other arrays."""


@dataclass(frozen=True)
class WholeModel:
    """A model of a network with integer or boolean buffers, as it is passed between processes.

    Attributes:
        vector: float32 [length of the model]: parameters, then floating-point buffers.
        discrete: The other buffers; never empty.
    """

    vector: np.ndarray
    discrete: Discrete

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.vector.nbytes + sum(values.nbytes for values in self.discrete.values())


SentModel = np.ndarray | WholeModel
"""A model between processes: just its vector, unless the network has integer or boolean buffers."""


def joined(vector: np.ndarray, discrete: Discrete) -> SentModel:
    """Returns a model to pass on."""
    return WholeModel(vector, discrete) if discrete else vector


def split(model: SentModel) -> tuple[np.ndarray, Discrete]:
    """Returns the vector and the other buffers of a model."""
    return (model.vector, model.discrete) if isinstance(model, WholeModel) else (model, {})


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
