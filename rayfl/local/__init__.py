"""A client update: the context that an algorithm sees, the requests it makes, and local training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.local.client_state import ClientState
    from rayfl.local.client_streams import ClientStreams
    from rayfl.local.context import ClientContext
    from rayfl.local.data_view import DataView
    from rayfl.local.evaluation_batch import EvaluationBatch
    from rayfl.local.features import features_and_outputs
    from rayfl.local.queries import (
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
    from rayfl.local.training_batch import TrainingBatch
    from rayfl.local.training_step import TrainingStep

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
    "ClientStreams": "rayfl.local.client_streams",
    "ClientUpdate": "rayfl.local.requests",
    "DataView": "rayfl.local.data_view",
    "EvaluationBatch": "rayfl.local.evaluation_batch",
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
    "TrainingBatch": "rayfl.local.training_batch",
    "TrainingStep": "rayfl.local.training_step",
    "features_and_outputs": "rayfl.local.features",
}

__getattr__ = lazy_names(__name__, _HOMES)
