"""Callbacks follow a run, report it elsewhere, keep models and may stop it; one file per callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names
from rayfl.registry import Registry

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback, RunSoFar

__all__ = [
    "Callback",
    "RunSoFar",
]

_HOMES = {
    "Callback": "rayfl.callbacks.callback",
    "RunSoFar": "rayfl.callbacks.callback",
}

__getattr__ = lazy_names(__name__, _HOMES)

callbacks = Registry(
    "callback",
    {
        "best_model": "rayfl.callbacks.best_model:BestModel",
        "early_stopping": "rayfl.callbacks.early_stopping:EarlyStopping",
        "live_table": "rayfl.callbacks.live_table:LiveTable",
        "mlflow": "rayfl.callbacks.mlflow:MLflow",
        "periodic_model": "rayfl.callbacks.periodic_model:PeriodicModel",
        "ray_tune": "rayfl.callbacks.ray_tune:RayTune",
        "tensorboard": "rayfl.callbacks.tensorboard:TensorBoard",
        "wandb": "rayfl.callbacks.wandb:WandB",
    },
)
