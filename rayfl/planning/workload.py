"""What a phase trains: data, network and evaluation. Phases of one scenario need not train the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rayfl.config.execution import Evaluation
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.models.slot import Slot
from rayfl.planning.slices import Slice, cut

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.tasks.task import Task


@dataclass(frozen=True)
class InitialModel:
    """A network before training, as a flat vector.

    Attributes:
        vector: float32 [length of the model], parameters, then buffers.
        layout: Where each tensor lies in it.
    """

    vector: np.ndarray
    layout: Sequence[Slot]

    @property
    def num_params(self) -> int:
        """Length of the parameters' part, padding included."""
        return max(slot.end for slot in self.layout if slot.is_parameter)

    def check_takes(self, other: InitialModel) -> None:
        """Checks that weights of another model can be taken over: both must have the same names, with the same shapes.

        Raises:
            ScenarioError: They differ; names a tensor in which they do.
        """
        own, others = ({name: slot.shape for slot in model.layout for name in slot.names} for model in (self, other))
        for name in sorted(own.keys() | others.keys()):
            if own.get(name) != others.get(name):
                shapes = [list(held[name]) if name in held else "missing" for held in (others, own)]
                raise ScenarioError(f"the models differ: '{name}' is {shapes[0]} before and {shapes[1]} after")

    def take(self, vector: np.ndarray, other: InitialModel) -> np.ndarray:
        """Takes over the weights of another model, by name.

        Args:
            vector: float32 [length of the other model], its values.
            other: The model that they are of, which `check_takes` accepts.

        Returns:
            float32 [length of this model].
        """
        sources = {name: slot for slot in other.layout for name in slot.names}
        taken = np.array(self.vector)
        for slot in self.layout:
            _view(taken, slot)[...] = _view(vector, sources[slot.name])
        return taken


def _view(vector: np.ndarray, slot: Slot) -> np.ndarray:
    strides = [vector.itemsize * stride for stride in slot.strides]
    return np.lib.stride_tricks.as_strided(vector[slot.offset : slot.offset + slot.size], slot.shape, strides)


@dataclass(frozen=True)
class Population:
    """What is known of the clients without their data.

    Attributes:
        sizes: [clients] training samples of each client.
        slices: Of the test samples.
    """

    sizes: np.ndarray
    slices: Sequence[Slice]


@dataclass(frozen=True)
class Workload:
    """What a phase trains.

    Attributes:
        network: The network's name and options.
        initial: The network before training.
        store: The data, partitioned.
        task: What is learned.
        num_outputs: Width of the network's output.
        evaluation: How the model is scored, and on which samples.
    """

    network: Named
    initial: InitialModel
    store: ShardStore
    task: Task
    num_outputs: int
    evaluation: Evaluation

    @cached_property
    def population(self) -> Population:
        """What the scheduler needs of the data.

        Raises:
            ScenarioError: As `cut`.
        """
        return Population(self.store.train_shards.sizes, cut(self.evaluation, self.store))
