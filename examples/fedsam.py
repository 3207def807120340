"""FedSAM: clients look for flat minima with sharpness-aware minimisation.

    python -m rayfl.scenario examples/fedsam.toml --quick

Qu et al., "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022, alg. 1; SAM is Foret et al.,
ICLR 2021. Everything else is FedAvg, so it combines with regularisers, server optimizers and the options of `local`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import PositiveFloat

from rayfl.algorithms import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local import ClientContext, TrainingStep


class FedSAM(FedAvg):
    """g = grad F(w + rho grad F(w) / ||grad F(w)||), both gradients on the same batch."""

    rho: PositiveFloat = 0.05

    def step_gradient(self, client: ClientContext, step: TrainingStep) -> torch.Tensor:
        ascent = step.gradient()
        return step.gradient(at=step.params + self.rho * ascent / ascent.norm().clamp(min=1e-12))
