"""Callbacks follow a run, report it elsewhere, keep models and may stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.callbacks.callback import Callback as Callback
    from rayfl.callbacks.callback import RunSoFar as RunSoFar
else:
    __getattr__, __dir__ = lazy_names(__name__)


callbacks = Registry(
    "callback",
    {
        "best_model": "rayfl.callbacks.model_files:BestModel",
        "early_stopping": "rayfl.callbacks.ranking:EarlyStopping",
        "live_table": "rayfl.callbacks.live_table:LiveTable",
        "mlflow": "rayfl.callbacks.trackers:MLflow",
        "periodic_model": "rayfl.callbacks.model_files:PeriodicModel",
        "ray_tune": "rayfl.callbacks.trackers:RayTune",
        "tensorboard": "rayfl.callbacks.trackers:TensorBoard",
        "wandb": "rayfl.callbacks.trackers:WandB",
    },
)
