"""The releases of private training about samples: noised sums of clipped gradients and of bounded losses.

The gradients of one parameter by sample are one tensor, or two factors for a linear layer's weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from rayfl.config.privacy import SampleDP
from rayfl.data.tensors import to_device
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import Slot
from rayfl.privacy.samples.batches import Seeded
from rayfl.privacy.secure_noise import Lattice, discrete_gaussian


class SampleGradients(Protocol):
    """One gradient of each of n samples."""

    def norms(self) -> torch.Tensor:
        """[n] L2 norms."""

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Returns the weighted sum of the gradients, in the parameter's shape; `weights` is [n]."""

    def each(self) -> torch.Tensor:
        """[n, ...]."""


@dataclass(frozen=True)
class Whole:
    """All gradients in one tensor, [n, ...]."""

    gradients: torch.Tensor

    def norms(self) -> torch.Tensor:
        norms: torch.Tensor = self.gradients.flatten(1).norm(dim=1)
        return norms

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        return (weights @ self.gradients.flatten(1)).view(self.gradients.shape[1:])

    def each(self) -> torch.Tensor:
        return self.gradients


@dataclass(frozen=True)
class OuterProducts:
    """Gradients b aᵀ of a linear layer's weight; only b [n, out], the gradients by its outputs, and a [n, in] are kept.

    Their norm is the product of the factors' norms (Goodfellow, arXiv 1510.01799), and their weighted sum is one matrix
    product, which touches no more memory than training without privacy.
    """

    to_outputs: torch.Tensor
    inputs: torch.Tensor

    def norms(self) -> torch.Tensor:
        norms: torch.Tensor = self.to_outputs.norm(dim=1) * self.inputs.norm(dim=1)
        return norms

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        return (weights.unsqueeze(1) * self.to_outputs).T @ self.inputs

    def each(self) -> torch.Tensor:
        return torch.einsum("no,ni->noi", self.to_outputs, self.inputs)


def of_these(gradients: SampleGradients, chosen: torch.Tensor | slice) -> SampleGradients:
    """Returns the gradients of the samples that a mask [n] or a slice selects."""
    if isinstance(gradients, OuterProducts):
        return OuterProducts(gradients.to_outputs[chosen], gradients.inputs[chosen])
    return Whole(gradients.each()[chosen])


def mean_of_copies(gradients: SampleGradients, copies: int) -> SampleGradients:
    """The mean gradient of each sample over its consecutive augmented copies."""
    if copies == 1:
        return gradients
    each = gradients.each()
    return Whole(each.view(-1, copies, *each.shape[1:]).mean(dim=1))


ROUNDING = 2.0**-20
"""Relative margin that keeps clipped gradients below C despite rounding. Opacus instead adds 1e-6 to the norm, which
float32 loses for norms above 10."""

VALUES_AT_ONCE = 1 << 17
"""Steps in memory at once: one mebibyte, which fits in the cache of a core."""

OfSlots = Sequence[tuple[Slot, SampleGradients]]
"""Gradients of n samples, by parameter."""


class ReleasedSums(ABC):
    """A sum of gradients and one of losses, from the first sample to the added noise.

    Args:
        model: The resident model; the released sum is written into its gradient.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._loss = torch.zeros(1, dtype=torch.float64, device=model.vector.device)

    @abstractmethod
    def clear(self) -> None:
        """Starts a new sum of gradients."""

    @abstractmethod
    def add_gradients(self, gradients: OfSlots, counted: int) -> None:
        """Adds gradients g, each as g min(1, C / ||g||), and as zero if its norm is not finite.

        Args:
            gradients: Those of n samples, by parameter.
            counted: How many of them count, starting from the first; the others only fill up the pass.
        """

    @abstractmethod
    def add_losses(self, losses: torch.Tensor) -> None:
        """Adds losses [n], each clipped to [0, L]; NaN counts as L."""

    @abstractmethod
    def release_gradient(self) -> None:
        """Writes the noised sum into the resident model's gradient."""

    @abstractmethod
    def release_loss(self) -> torch.Tensor:
        """[1] float64, the noised sum."""


class FloatSums(ReleasedSums):
    """Floating-point sums with seeded noise, which hides nothing from anyone who knows the seed or inspects bits.

    Args:
        model: The resident model.
        dp: Gives C (`max_grad_norm`) and L (`max_loss`).
        noise_multiplier: Standard deviation of the noise, in units of C or L; 0 adds none.
        noise: Source of the noise.
    """

    def __init__(self, model: FlatModel, dp: SampleDP, noise_multiplier: float, noise: Seeded) -> None:
        super().__init__(model)
        self._dp, self._noise_multiplier, self._noise = dp, noise_multiplier, noise

    def clear(self) -> None:
        self._model.zero_gradient()

    def add_gradients(self, gradients: OfSlots, counted: int) -> None:
        add_clipped(gradients, self._dp.max_grad_norm, self._model.gradient, counted)

    def add_losses(self, losses: torch.Tensor) -> None:
        self._loss += bounded(losses, self._dp.max_loss).sum()

    def release_gradient(self) -> None:
        if not self._noise_multiplier:
            return
        for slot in self._model.training_slots:
            drawn = to_device(torch.from_numpy(self._noise.normal(slot.size)), self._model.vector.device)
            self._model.gradient[slot.offset : slot.offset + slot.size].add_(
                drawn, alpha=self._noise_multiplier * self._dp.max_grad_norm
            )

    def release_loss(self) -> torch.Tensor:
        if not self._noise_multiplier:
            return self._loss
        return self._loss + self._noise_multiplier * self._dp.max_loss * float(self._noise.normal(1)[0])


class LatticeSums(ReleasedSums):
    """Sums in whole steps of a lattice, with discrete Gaussian noise from the operating system: exact to the last bit.

    Args:
        model: The resident model.
        dp: Gives C (`max_grad_norm`) and L (`max_loss`).
        noise_multiplier: Standard deviation of the noise, in units of C or L.
    """

    def __init__(self, model: FlatModel, dp: SampleDP, noise_multiplier: float) -> None:
        super().__init__(model)
        self._gradients, self._losses = (Lattice(noise_multiplier, bound) for bound in (dp.max_grad_norm, dp.max_loss))
        self._steps = model.gradient.new_zeros(len(model.gradient), dtype=torch.float64)  # integers

    def clear(self) -> None:
        self._steps.zero_()

    def add_gradients(self, gradients: OfSlots, counted: int) -> None:
        norms = torch.stack([gradient.norms() for _, gradient in gradients]).norm(dim=0)[:counted]  # of a whole pass
        gradients = [(slot, of_these(gradient, slice(counted))) for slot, gradient in gradients]
        everybody = torch.ones_like(norms, dtype=torch.bool)
        totals, squares = self._totals(gradients, norms, everybody)
        if not (admitted := self._gradients.admits(squares)).all():
            totals, _ = self._totals(gradients, norms, admitted)
        for (slot, _), total in zip(gradients, totals, strict=True):
            into = slot.view(self._steps)
            into.add_(total.view(into.shape))

    def add_losses(self, losses: torch.Tensor) -> None:
        within = bounded(losses, self._losses.bound).float()
        steps = self._losses.in_steps(within.unsqueeze(1), within)
        self._loss += steps[self._losses.admits(steps.square().sum(dim=1))].sum()

    def release_gradient(self) -> None:
        self._model.zero_gradient()
        slots = self._model.training_slots
        sizes = [slot.size for slot in slots]
        drawn = to_device(torch.from_numpy(discrete_gaussian(sum(sizes))), self._steps.device)
        for slot, noise in zip(slots, torch.split(drawn, sizes), strict=True):
            part = slice(slot.offset, slot.offset + slot.size)
            self._model.gradient[part] = (self._steps[part] + noise) * self._gradients.step

    def _totals(
        self, gradients: OfSlots, norms: torch.Tensor, admitted: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Returns the sum of steps of the admitted samples by parameter, and [n] squared norms, 0 for the others.

        Works on a few samples at a time: every step is computed from one value of one sample before anything is summed.
        """
        squares = torch.zeros_like(norms, dtype=torch.float64)
        totals = []
        for slot, gradient in gradients:
            total = self._steps.new_zeros(slot.size)
            at_once = max(1, VALUES_AT_ONCE // slot.size)
            for start in range(0, len(norms), at_once):
                rows = slice(start, start + at_once)
                steps = self._gradients.in_steps(of_these(gradient, rows).each().flatten(1), norms[rows])
                steps[~admitted[rows]] = 0
                total += steps.sum(dim=0)
                squares[rows] += steps.square_().sum(dim=1)
            totals.append(total)
        return totals, squares

    def release_loss(self) -> torch.Tensor:
        return (self._loss + int(discrete_gaussian(1)[0])) * self._losses.step


def add_clipped(gradients: OfSlots, bound: float, total: torch.Tensor, counted: int) -> None:
    """Adds the first clipped gradients to a flat vector, skipping those whose norm is not finite."""
    norms = torch.stack([gradient.norms() for _, gradient in gradients]).norm(dim=0)
    finite = norms.isfinite() & (torch.arange(len(norms), device=norms.device) < counted)
    if not finite.all():
        gradients = [(slot, of_these(gradient, finite)) for slot, gradient in gradients]
    factors = clipping_factors(norms, bound)[finite]
    for slot, gradient in gradients:
        slot.view(total).add_(gradient.weighted_sum(factors))


def clipping_factors(norms: torch.Tensor, bound: float) -> torch.Tensor:
    """Returns the factors that clip gradients with these norms."""
    return ((1 - ROUNDING) * bound / norms).clamp(max=1.0)


def bounded(losses: torch.Tensor, largest: float) -> torch.Tensor:
    """Returns losses in float64, each clamped to [0, largest]; NaN, which clamping keeps, counts as the largest."""
    return losses.double().nan_to_num(nan=largest).clamp(0, largest)
