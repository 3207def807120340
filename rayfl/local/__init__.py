"""A client update: the context that an algorithm sees, the requests it makes, and local training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.local.batches import EvaluationBatch, TrainingBatch, TrainingStep
    from rayfl.local.client_state import ClientState
    from rayfl.local.context import ClientContext, ClientStreams
    from rayfl.local.queries import (
        DataView,
        Features,
        Gradient,
        HessianVectorProduct,
        Labels,
        Loss,
        LossAndGradient,
        Outputs,
        Rehearsal,
    )
    from rayfl.local.requests import Affine, ClientUpdate, LocalTraining, LossTerm
    from rayfl.models.feature_layer import features_and_outputs

__all__ = [
    "Affine",
    "ClientContext",
    "ClientState",
    "ClientStreams",
    "ClientUpdate",
    "DataView",
    "EvaluationBatch",
    "Features",
    "Gradient",
    "HessianVectorProduct",
    "Labels",
    "LocalTraining",
    "Loss",
    "LossAndGradient",
    "LossTerm",
    "Outputs",
    "Rehearsal",
    "TrainingBatch",
    "TrainingStep",
    "features_and_outputs",
]

_HOMES = {
    "Affine": "rayfl.local.requests",
    "ClientContext": "rayfl.local.context",
    "ClientState": "rayfl.local.client_state",
    "ClientStreams": "rayfl.local.context",
    "ClientUpdate": "rayfl.local.requests",
    "DataView": "rayfl.local.queries",
    "EvaluationBatch": "rayfl.local.batches",
    "Features": "rayfl.local.queries",
    "Gradient": "rayfl.local.queries",
    "HessianVectorProduct": "rayfl.local.queries",
    "Labels": "rayfl.local.queries",
    "LocalTraining": "rayfl.local.requests",
    "Loss": "rayfl.local.queries",
    "LossAndGradient": "rayfl.local.queries",
    "LossTerm": "rayfl.local.requests",
    "Outputs": "rayfl.local.queries",
    "Rehearsal": "rayfl.local.queries",
    "TrainingBatch": "rayfl.local.batches",
    "TrainingStep": "rayfl.local.batches",
    "features_and_outputs": "rayfl.models.feature_layer",
}

__getattr__ = lazy_names(__name__, _HOMES)
