"""The workload of a phase: data, network and evaluation. Phases of one scenario may differ in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rayfl.config.execution import Evaluation
from rayfl.config.section import Named
from rayfl.engine.plan.slices import Slices, cut
from rayfl.models.tensors import Discrete, Slot, followed, taken_over

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.tasks.task import Task


@dataclass(frozen=True)
class Handover:
    """The transfer of weights from one phase to the next.

    Attributes:
        taken: Names of the transferred tensors.
        fresh: Names of the tensors that stay as initialised.
        not_used: Names of the previous model's tensors that are not used.
    """

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    not_used: tuple[str, ...]

    def summary(self) -> str:
        """A one-line summary."""
        return taken_over(self.taken, self.fresh, self.not_used)


@dataclass(frozen=True)
class InitialModel:
    """A network before training, as a flat vector, and its constants.

    Attributes:
        vector: float32 [length of the model], parameters, then buffers.
        layout: The position of each tensor in the vector.
        head: Name of the feature layer; empty if the network declares none.
        copies: Modules that are copies of others (`Network.copies`).
        frozen: Names of the integer and boolean buffers, and of frozen parameters in the vector, that neither training
            nor the code of the network or the task changes.
        channels_last: Whether 4-D tensors are stored channels-last; False for code that needs contiguous weights.
        discrete: The integer and boolean buffers, which are not part of the vector.
        constants: The memory of the constants (`Constants.memory`), which no message holds. Where an earlier phase
            changes them (`late`), only initial values; empty where nothing reads them.
        constant_slots: Their places.
    """

    vector: np.ndarray
    layout: Sequence[Slot]
    head: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    channels_last: bool = True
    discrete: Discrete = field(default_factory=dict)
    constants: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    constant_slots: Sequence[Slot] = ()

    @property
    def num_params(self) -> int:
        """Length of the parameters' part, padding included."""
        return max(slot.end for slot in self.layout if slot.is_parameter)

    @property
    def memory_format(self) -> str:
        """How 4-D tensors are stored, in PyTorch's words."""
        return "channels_last" if self.channels_last else "contiguous"

    def handover(self, other: InitialModel, fresh_head: bool = False) -> Handover:
        """The tensors that this model takes over from another: those with the same name and shape.

        Args:
            other: The previous model.
            fresh_head: Whether the feature layer stays as initialised regardless.
        """
        sources = self.sources(other, fresh_head)
        own = {slot.name: sources.get(slot.name, "") for slot in (*self.layout, *self.constant_slots)}
        beside = self.take_discrete(other.discrete, fresh_head)
        own |= {name: name if values is not self.discrete[name] else "" for name, values in beside.items()}
        taken = tuple(name for name, source in own.items() if source)
        used = {source for source in own.values() if source}
        slots = (*other.layout, *other.constant_slots)
        unused = tuple(slot.name for slot in slots if not used.intersection(slot.names))
        unused += tuple(name for name in other.discrete if name not in used)
        return Handover(taken, tuple(name for name, source in own.items() if not source), unused)

    def take(
        self, vector: np.ndarray, other: InitialModel, fresh_head: bool = False, constants: np.ndarray | None = None
    ) -> np.ndarray:
        """Takes over the weights of another model; see `handover`. A copy's missing tensors equal its original's.

        Args:
            vector: float32 [length of the other model], its values.
            other: The other model.
            fresh_head: Whether the feature layer stays as initialised.
            constants: The memory of the other model's constants; by default that of `other`.

        Returns:
            float32 [length of this model].
        """
        taken = np.array(self.vector)
        theirs, sources = other._arrays(vector, constants), self.sources(other, fresh_head)
        for slot in self.layout:
            if slot.name in sources:
                slot.array(taken)[...] = theirs[sources[slot.name]]
        missing = {slot: followed(slot.name, self.copies) for slot in self.layout if slot.name not in sources}
        if copies := {slot: original for slot, original in missing.items() if original}:
            own = self._arrays(taken, self.take_constants(vector, other, fresh_head, constants))
            for slot, original in copies.items():
                slot.array(taken)[...] = own[original]
        return taken

    def take_constants(
        self, vector: np.ndarray, other: InitialModel, fresh_head: bool = False, constants: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns the memory of this model's constants with the weights of another model; arguments as for `take`."""
        theirs, sources = other._arrays(vector, constants), self.sources(other, fresh_head)
        length = self.constant_slots[-1].end if self.constant_slots else 0
        taken = np.array(self.constants) if len(self.constants) else np.zeros(length, np.float32)
        for slot in self.constant_slots:
            if sources.get(slot.name) in theirs:
                slot.write(taken, theirs[sources[slot.name]])
        return taken

    def sources(self, other: InitialModel, fresh_head: bool = False) -> Mapping[str, str]:
        """The other model's names of the tensors that this one takes over, by its own first names."""
        shapes = {name: tuple(slot.shape) for slot in (*other.layout, *other.constant_slots) for name in slot.names}
        own = {slot.name: self._source_of(slot, shapes, fresh_head) for slot in (*self.layout, *self.constant_slots)}
        return {name: source for name, source in own.items() if source}

    def _arrays(self, vector: np.ndarray, constants: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The tensors of a model with this layout, by any of their names; constants only where they are known."""
        beside = self.constants if constants is None else constants
        known = self.constant_slots if len(beside) else ()
        parts: list[tuple[Sequence[Slot], np.ndarray]] = [(self.layout, vector), (known, beside)]
        return {name: slot.array(memory) for slots, memory in parts for slot in slots for name in slot.names}

    def move_constants(self, move: Callable[[np.ndarray], np.ndarray]) -> None:
        """Replaces the memory of the constants by an equal one elsewhere; see `ShardStore.move_arrays`."""
        object.__setattr__(self, "constants", move(self.constants))

    def take_discrete(self, values: Discrete, fresh_head: bool = False) -> Discrete:
        """Takes over another model's integer and boolean buffers: those that agree in name, shape and type.

        Args:
            values: Its values.
            fresh_head: Whether those of the feature layer stay as initialised.
        """
        taken = dict(self.discrete)
        for name, initial in self.discrete.items():
            source = name if name in values else followed(name, self.copies) or name
            other, fresh = values.get(source), fresh_head and self.head and name.startswith(f"{self.head}.")
            if other is not None and not fresh and (other.shape, other.dtype) == (initial.shape, initial.dtype):
                taken[name] = other
        return taken

    def _source_of(self, slot: Slot, shapes: Mapping[str, tuple[int, ...]], fresh_head: bool) -> str:
        """The other model's name of the tensor that a slot takes over; empty if it takes none.

        A tensor that the feature layer shares with the rest of the network (tied weights) belongs to the rest.
        """
        if fresh_head and self.head and all(name.startswith(f"{self.head}.") for name in slot.names):
            return ""
        return next((name for name in slot.names if shapes.get(name) == tuple(slot.shape)), "")


def late_constants(models: Sequence[InitialModel], fresh_heads: Sequence[bool]) -> list[frozenset[str]]:
    """Names the constants of each phase that are known only when it begins, since an earlier phase changes them.

    Args:
        models: The initial model of each phase.
        fresh_heads: Whether each phase begins with a fresh feature layer.
    """
    late: list[frozenset[str]] = [frozenset()]
    for before, own, fresh_head in zip(models, models[1:], fresh_heads[1:], strict=False):
        changing = {name for slot in before.layout for name in slot.names}
        changing |= {name for slot in before.constant_slots if slot.name in late[-1] for name in slot.names}
        sources = own.sources(before, fresh_head)
        late.append(frozenset(slot.name for slot in own.constant_slots if sources.get(slot.name) in changing))
    return late


@dataclass(frozen=True)
class Population:
    """Facts about the clients, without their data.

    Attributes:
        sizes: [clients], the number of training samples of each client.
        slices: Slices of the test samples.
        fragments: [clients] int32, the fragment of prepared data with each client's samples; None for other data.
        labels: [clients] int64, the most frequent class of each client, for samplers that read it; else None.
    """

    sizes: np.ndarray
    slices: Slices
    fragments: np.ndarray | None = None
    labels: np.ndarray | None = None

    @cached_property
    def ends(self) -> np.ndarray:
        """[clients] int64, the number of training samples of each client and all before it."""
        return np.cumsum(self.sizes)


@dataclass(frozen=True)
class Workload:
    """The data, network and evaluation of a phase.

    Attributes:
        network: The network's name and options.
        initial: The network before training.
        store: The partitioned data.
        task: The task.
        num_outputs: Width of the network's output.
        evaluation: How and on which samples to score the model.
    """

    network: Named
    initial: InitialModel
    store: ShardStore
    task: Task
    num_outputs: int
    evaluation: Evaluation

    @cached_property
    def population(self) -> Population:
        """The facts about the clients that the scheduler needs.

        Raises:
            ScenarioError: As `cut`.
        """
        store = self.store
        return Population(store.train_shards.sizes, cut(self.evaluation, store), store.fragments)
