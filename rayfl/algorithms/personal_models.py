"""Models that clients keep for themselves, evaluated by `evaluation.client_model = "personal"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext


class PersonalModels:
    """Whether clients have personal models, and how to assemble them; a base class of every `Algorithm`."""

    def has_personal_model(self) -> bool:
        """Whether every client has its own model, which `evaluation.client_model = "personal"` evaluates."""
        return False

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """Assembles a client's own model.

        Args:
            client: The client, with its state after the last committed round.
            model: float32 [length of the model], the global model to evaluate; do not change it.

        Returns:
            float32 [length of the model].
        """
        return model
