"""Copies of a model's network with other parameters than the resident ones, which are never trained."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

import torch
from torch import nn

from rayfl.models.tensors import Slot


class FrozenCopy:
    """A network in evaluation mode and without gradients, with the values of a vector.

    Made by `FlatModel.frozen_copy`. Nothing is copied: the tensors of the network are views into the vector, so
    changing the vector changes the network. Use it as a context manager, or call `release` when done; its network is
    then kept for the next call:

        with model.frozen_copy(global_vector) as teacher:
            targets = teacher.module(x)
    """

    def __init__(
        self, module: nn.Module, layout: Sequence[Slot], constants: Mapping[str, torch.Tensor], pool: list[nn.Module]
    ) -> None:
        self._module: nn.Module | None = module
        self._layout, self._constants, self._pool = layout, constants, pool

    @property
    def module(self) -> nn.Module:
        """The network.

        Raises:
            RuntimeError: The copy has been released, and its network may have other values by now.
        """
        if self._module is None:
            raise RuntimeError("this frozen copy has been released; ask the model for another one")
        return self._module

    def load(self, vector: torch.Tensor) -> None:
        """Points the network at another vector.

        Args:
            vector: Parameters and buffers, float32, in the layout of the model and on its device.

        Raises:
            RuntimeError: The copy has been released.
            ValueError: The vector has another length.
        """
        if vector.shape != (self._layout[-1].end,):
            raise ValueError(f"the vector has shape {tuple(vector.shape)}, the model's ({self._layout[-1].end},)")
        tensors: dict[str, torch.Tensor] = {
            **dict(self.module.named_parameters()),
            **dict(self.module.named_buffers(remove_duplicate=False)),
        }
        for slot in self._layout:
            tensors[slot.name].data = slot.view(vector)
        for name, value in self._constants.items():
            tensors[name].copy_(value)

    def release(self) -> None:
        """Returns the network to the model that it was copied from; does nothing the second time."""
        if self._module is not None:
            self._pool.append(self._module)
            self._module = None

    def __enter__(self) -> FrozenCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def freeze(module: nn.Module, constants: Iterable[torch.Tensor] = ()) -> nn.Module:
    """A deep copy of `module` in evaluation mode, whose parameters have no gradients; it shares the constants."""
    frozen = copy.deepcopy(module, {id(one): one for one in constants}).eval().requires_grad_(False)
    frozen.zero_grad(set_to_none=True)
    return frozen
