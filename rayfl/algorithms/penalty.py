"""Terms that an algorithm adds to the local objective."""

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
    """A term of the local objective: affine in the parameters, hence data, or a function of the batch."""

    def reads_features(self) -> bool:
        """Whether the network must declare its feature layer."""
        return False

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def client_state(self) -> Declaration:
        """What a client keeps for it."""
        return {}

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine | None:
        """The gradient of a term that is affine-quadratic in the parameters, around what training starts from."""
        return None

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm | None:
        """A function of the batch, made once for every training request; None for no term in this client update."""
        return None

    def after_training(self, client: ClientContext, trained: torch.Tensor) -> None:
        """Keeps what later client updates need of the trained model."""


PenaltyField: Any = component_field(penalties, Penalty)
