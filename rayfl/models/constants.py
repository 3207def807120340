"""The constants of a model: the parameters that a phase leaves as they are, and that no message holds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

import numpy as np
import torch

from rayfl.models.tensors import ALIGNMENT, Slot


class Constants:
    """Parameters that do not train, as views into memory that models and processes may share.

    These are frozen parameters (`requires_grad=False`), and those that a phase's `train` leaves out, which are frozen
    here.

    Attributes:
        slots: Their places, in order.
        memory: [slots and padding], declared as float32 although every constant keeps its own type.
        parameters: The parameters, in the same order.

    Args:
        slots: Their places.
        parameters: The parameters by name, on the device of the model.
        device: The device of the memory.
    """

    def __init__(self, slots: Sequence[Slot], parameters: Mapping[str, torch.Tensor], device: torch.device) -> None:
        self.slots, self.parameters = slots, [parameters[slot.name] for slot in slots]
        self.memory = torch.zeros(slots[-1].end if slots else 0, device=device)
        for slot, parameter in zip(slots, self.parameters, strict=True):
            if parameter.requires_grad:
                setattr(parameter.requires_grad_(False), _LEFT_OUT, True)
            slot.view(self.memory).copy_(parameter.detach())
            parameter.data = slot.view(self.memory)  # frees its own memory before the next one is copied
        self._versions = [parameter._version for parameter in self.parameters]

    def hold(self, memory: torch.Tensor) -> None:
        """Replaces the values; on the CPU nothing is copied.

        Args:
            memory: As `memory`, on any device.
        """
        self.memory = memory.to(self.memory.device)
        for slot, parameter in zip(self.slots, self.parameters, strict=True):
            parameter.data = slot.view(self.memory)
        self._versions = [parameter._version for parameter in self.parameters]

    def changed(self, current: Callable[[str], torch.Tensor]) -> Iterator[str]:
        """Yields the names of the constants that something has written to or replaced.

        Args:
            current: Returns what the module has by now under a name.
        """
        start = self.memory.data_ptr()
        for slot, parameter, version in zip(self.slots, self.parameters, self._versions, strict=True):
            moved = slot.size and parameter.data_ptr() != start + slot.offset * self.memory.element_size()
            if moved or parameter._version != version or current(slot.name) is not parameter:
                yield slot.name

    def digests(self) -> dict[str, str]:
        """The digest of every constant, by name."""
        memory = self.memory.cpu().numpy()
        return {slot.name: sha256(memory[slot.offset : slot.end].data).hexdigest() for slot in self.slots}


_LEFT_OUT = "rayfl_left_out"


def is_trainable(parameter: torch.Tensor) -> bool:
    """Whether a parameter requires gradients, or would if the phase's `train` did not leave it out."""
    return parameter.requires_grad or getattr(parameter, _LEFT_OUT, False)


def changes_constant(name: str) -> str:
    """Says what to do about a network or a task that changes a constant."""
    return (
        f"model: '{name}' is frozen (requires_grad=False, or left out by the phase's `train`) and so a constant, but "
        "the network or its task changes it; make it a buffer (register_buffer), or declare in the network's `copies` "
        "which module follows which"
    )


def as_view(memory: np.ndarray) -> torch.Tensor:
    """The memory of constants as a tensor, which nothing may write to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(memory)


def as_tensor(memory: np.ndarray) -> torch.Tensor:
    """The memory of constants as a tensor: what cannot be written to is shared between processes and not copied."""
    shared = not memory.flags.writeable and memory.ctypes.data % (ALIGNMENT * memory.itemsize) == 0
    return as_view(memory) if shared else as_view(memory).clone()
