"""Optimizers on the flat vector: how the parts of it that train take a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch.optim import Optimizer

from rayfl.config.local import Local
from rayfl.config.section import Named
from rayfl.local.optimizers import OPTIMIZERS, build_optimizer, is_elementwise, others_of
from rayfl.models.flat import FlatModel

WHERE = "local.optimizer"


class Stepping(Protocol):
    """A fresh optimizer for one client update."""

    def step(self, parts: Sequence[slice], lr: float) -> None:
        """Takes a step with the model's gradient.

        Args:
            parts: The parts of the vector that train and that a loss of the step reaches; elsewhere the gradient is
                zero, and neither parameters nor optimizer state change. The state starts with a part's first step.
            lr: The learning rate of this step.
        """


def stepping(
    model: FlatModel,
    stages: Sequence[Sequence[slice]],
    local: Local,
    decay: float,
    velocity: torch.Tensor | None = None,
) -> Stepping:
    """Builds the optimizer that `local` names.

    Args:
        model: The resident model.
        stages: The parts that train, for every stage of the client update.
        local: Options of local training.
        decay: Weight decay added by the algorithm: a term of the gradient, after clipping, whatever the optimizer does
            with `local.weight_decay`.
        velocity: float32 [length of params], the initial momentum of plain SGD, updated in place; by default zero.
    """
    if local.is_plain_sgd:
        return FusedSGD(model, local.momentum, local.weight_decay + decay, velocity)
    return TorchOptimizers(model, stages, local, decay)


class FusedSGD:
    """PyTorch's SGD with heavy-ball momentum and coupled weight decay, in a few operations on the whole vector."""

    def __init__(self, model: FlatModel, momentum: float, decay: float, velocity: torch.Tensor | None = None) -> None:
        self._model, self._momentum, self._decay = model, momentum, decay
        self._velocity = torch.zeros_like(model.params) if momentum and velocity is None else velocity

    def step(self, parts: Sequence[slice], lr: float) -> None:
        params, gradient = self._model.params, self._model.gradient
        for part in parts:
            step = gradient[part]
            if self._decay:
                step.add_(params[part], alpha=self._decay)
            if self._velocity is not None:
                step = self._velocity[part].mul_(self._momentum).add_(step)
            params[part].add_(step, alpha=-lr)


@dataclass(frozen=True, eq=False)
class _Piece:
    """A tensor that an optimizer sees: a stretch of the vector, or a parameter in its shape."""

    start: int
    stop: int
    values: torch.Tensor
    gradient: torch.Tensor

    def lies_in(self, parts: Sequence[slice]) -> bool:
        return any(part.start <= self.start and self.stop <= part.stop for part in parts)


class TorchOptimizers:
    """Optimizers of torch.optim, or a user's own, on views into the vector.

    Elementwise optimizers get the whole vector, cut where steps begin or end, which gives few and long pieces; the
    others get every parameter in its shape. What takes no step has no gradient, and PyTorch's optimizers skip it.
    """

    def __init__(self, model: FlatModel, stages: Sequence[Sequence[slice]], local: Local, decay: float) -> None:
        self._model, self._decay = model, decay
        self._stage: Sequence[slice] | None = None
        elementwise = is_elementwise(OPTIMIZERS.target(local.optimizer.name, WHERE))
        self._pieces = [_stretch(model, 0, len(model.params))] if elementwise else _parameters(model, stages)
        others = others_of(local.optimizer)
        taken = [piece for piece in self._pieces if not others or piece.values.ndim == 2]
        rest = [piece for piece in self._pieces if others and piece.values.ndim != 2]
        self._optimizers: list[Optimizer] = []
        for chosen, pieces in ((local.optimizer, taken), (others, rest)):
            if isinstance(chosen, Named) and pieces:
                self._optimizers.append(build_optimizer(chosen, local, (piece.values for piece in pieces), WHERE))

    def step(self, parts: Sequence[slice], lr: float) -> None:
        if parts is not self._stage:
            self._stage = parts
            self._cut_at({end for part in parts for end in (part.start, part.stop)})
            for piece in self._pieces:
                piece.values.grad = piece.gradient if piece.lies_in(parts) else None
        if self._decay:
            for part in parts:
                self._model.gradient[part].add_(self._model.params[part], alpha=self._decay)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()

    def _cut_at(self, ends: Set[int]) -> None:
        """Cuts stretches, and their optimizer state with them; parameters in their shape never contain an end."""
        for whole in [*self._pieces]:
            inside = sorted(end for end in ends if whole.start < end < whole.stop)
            if not inside:
                continue
            (optimizer,), index = self._optimizers, self._pieces.index(whole)
            parts = [_stretch(self._model, *place) for place in pairwise([whole.start, *inside, whole.stop])]
            self._pieces[index : index + 1] = parts
            optimizer.param_groups[0]["params"][index : index + 1] = [part.values for part in parts]
            if state := optimizer.state.pop(whole.values, None):
                optimizer.state |= {part.values: _state_of(part, whole, state) for part in parts}


def _stretch(model: FlatModel, start: int, stop: int) -> _Piece:
    return _Piece(start, stop, model.params[start:stop], model.gradient[start:stop])


def _state_of(part: _Piece, whole: _Piece, state: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer state of a part: its elements of what the optimizer keeps for each, and copies of the rest."""
    place, part_state = slice(part.start - whole.start, part.stop - whole.start), dict(state)
    for name, value in state.items():
        if torch.is_tensor(value):
            part_state[name] = (value[place] if value.shape == whole.values.shape else value).clone()
    return part_state


def _parameters(model: FlatModel, stages: Sequence[Sequence[slice]]) -> list[_Piece]:
    pieces = [
        _Piece(slot.offset, slot.end, slot.view(model.params), slot.view(model.gradient))
        for slot in model.layout
        if slot.is_parameter
    ]
    return [piece for piece in pieces if any(piece.lies_in(parts) for parts in stages)]
