"""A client update: the context that an algorithm sees, the requests it makes, and local training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.local.batches import EvaluationBatch as EvaluationBatch
    from rayfl.local.batches import TrainingBatch as TrainingBatch
    from rayfl.local.batches import TrainingStep as TrainingStep
    from rayfl.local.client_state import ClientState as ClientState
    from rayfl.local.context import ClientContext as ClientContext
    from rayfl.local.context import ClientStreams as ClientStreams
    from rayfl.local.queries import DataView as DataView
    from rayfl.local.queries import Features as Features
    from rayfl.local.queries import Gradient as Gradient
    from rayfl.local.queries import HessianVectorProduct as HessianVectorProduct
    from rayfl.local.queries import Labels as Labels
    from rayfl.local.queries import Loss as Loss
    from rayfl.local.queries import LossAndGradient as LossAndGradient
    from rayfl.local.queries import Outputs as Outputs
    from rayfl.local.queries import Rehearsal as Rehearsal
    from rayfl.local.requests import Affine as Affine
    from rayfl.local.requests import ClientUpdate as ClientUpdate
    from rayfl.local.requests import LocalTraining as LocalTraining
    from rayfl.local.requests import LossTerm as LossTerm
    from rayfl.models.feature_layer import features_and_outputs as features_and_outputs
else:
    __getattr__, __dir__ = lazy_names(__name__)
