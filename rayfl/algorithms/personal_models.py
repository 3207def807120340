"""Models that clients keep for themselves, which `evaluation.client_model = "personal"` scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext


class PersonalModels:
    """Whether clients have models of their own, and how these are assembled; a base of every `Algorithm`."""

    def has_personal_model(self) -> bool:
        """Whether every client has a model of its own, which `evaluation.client_model = "personal"` scores."""
        return False

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """Assembles a client's own model.

        Args:
            client: The client, with the state that it kept after the last committed round.
            model: float32 [length of the model], the global model to evaluate; it must not be changed.

        Returns:
            float32 [length of the model].
        """
        return model
