"""Per-sample gradients of one parameter: one tensor, or two factors for a linear layer's weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


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
        """See `SampleGradients.norms`."""
        norms: torch.Tensor = self.gradients.flatten(1).norm(dim=1)
        return norms

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """See `SampleGradients.weighted_sum`."""
        return (weights @ self.gradients.flatten(1)).view(self.gradients.shape[1:])

    def each(self) -> torch.Tensor:
        """See `SampleGradients.each`."""
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
        """See `SampleGradients.norms`."""
        norms: torch.Tensor = self.to_outputs.norm(dim=1) * self.inputs.norm(dim=1)
        return norms

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """See `SampleGradients.weighted_sum`."""
        return (weights.unsqueeze(1) * self.to_outputs).T @ self.inputs

    def each(self) -> torch.Tensor:
        """See `SampleGradients.each`."""
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
