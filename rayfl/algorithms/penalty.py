"""Regularisers: terms that an algorithm adds to the local objective (the key `penalties`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rayfl.component import Component, component_field
from rayfl.local.state import Declaration
from rayfl.registry import Registry

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import Affine, LossTerm

penalties = Registry(
    "penalty",
    {
        "proximal": "rayfl.algorithms.fedprox:Proximal",
        "contrastive": "rayfl.algorithms.moon:Contrastive",
        "decorrelation": "rayfl.algorithms.feddecorr:Decorrelation",
    },
)


class Penalty(Component):
    """A regulariser of the local objective; derive from it to write your own.

    Define `affine` for a term that is affine-quadratic in the parameters (it is data, fused into the step, and free
    under `local.dp`), or `term` for any other function of the batch.

    Example:
        >>> from rayfl.algorithms import FedAvg, Penalty
        >>> class L1(Penalty):
        ...     name: str = "l1"
        ...     weight: float = 1e-4
        ...
        ...     def term(self, client, start):
        ...         return lambda batch: self.weight * sum(p.abs().sum() for p in batch.module.parameters())
        >>> FedAvg(penalties=(L1(weight=0.01), "proximal")).penalties
        (L1(name='l1', weight=0.01), Proximal(name='proximal', mu=0.01))
    """

    def reads_features(self) -> bool:
        """Whether the network must declare its feature layer."""
        return False

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def client_state(self) -> Declaration:
        """Declares the tensors that a client keeps for the regulariser, by name, with their scopes."""
        return {}

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine | None:
        """Returns the gradient of an affine-quadratic term; None if the regulariser has none.

        Args:
            client: The client.
            start: float32 [length of the model], the model that training starts from.
        """
        return None

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm | None:
        """Returns a function from a batch to a scalar loss, created once per training request; None for no term.

        Args:
            client: The client.
            start: float32 [length of the model], the model that training starts from.
        """
        return None

    def after_training(self, client: ClientContext, trained: torch.Tensor) -> None:
        """Stores what later client updates need of the trained model in `client.state`.

        Args:
            client: The client.
            trained: float32 [length of the model].
        """


PenaltyField: Any = component_field(penalties, Penalty)
