"""Linear and quadratic terms of several clients' objectives, computed for all rows of a matrix at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch

from rayfl.local.requests import Affine

NOTHING = Affine()


class StackedTerms:
    """Adds the gradients of every client's terms, each at the client's own row.

    Args:
        terms: The terms of each row; rows may have different numbers of them.
        matrix: [rows, num_params]; the terms are moved to its device.
    """

    def __init__(self, terms: Sequence[Sequence[Affine]], matrix: torch.Tensor) -> None:
        self._terms = [_OfRows(one, matrix) for one in zip_longest(*terms, fillvalue=NOTHING)]

    def add(self, gradient: torch.Tensor, params: torch.Tensor, scale: torch.Tensor | None = None) -> None:
        """Adds the terms' gradients in place.

        Args:
            gradient: [n, num_params], for the first n rows.
            params: [n, num_params], where the terms are evaluated; may be `gradient` itself.
            scale: [n, 1], factors; None for 1.
        """
        for term in self._terms:
            values = term.at(params)
            gradient.add_(values if scale is None else values * scale)


class _OfRows:
    """One term of each row: linear + quadratic * (params - centre)."""

    def __init__(self, terms: Sequence[Affine], matrix: torch.Tensor) -> None:
        self._quadratic = matrix.new_tensor([[term.quadratic] for term in terms])
        self._linear = _rows([term.linear for term in terms], matrix)
        self._centre = _rows([term.centre for term in terms], matrix)
        self._pulls = any(term.quadratic for term in terms)

    def at(self, params: torch.Tensor) -> torch.Tensor:
        """Returns the term's gradient at the first rows' parameters."""
        number = len(params)
        pull = torch.zeros_like(params)
        if self._pulls:
            away = params if self._centre is None else params - self._centre[:number]
            pull = away * self._quadratic[:number]
        return pull if self._linear is None else pull.add_(self._linear[:number])


def _rows(vectors: Sequence[torch.Tensor | None], matrix: torch.Tensor) -> torch.Tensor | None:
    """Stacks one vector per row, zero if missing; expands a vector that all rows share; None if all are missing."""
    present = [vector for vector in vectors if vector is not None]
    if not present:
        return None
    if len(present) == len(vectors) and all(vector is present[0] for vector in present):
        return present[0].expand(len(vectors), -1)
    return torch.stack([torch.zeros_like(matrix[0]) if vector is None else vector for vector in vectors])
