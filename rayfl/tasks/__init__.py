"""Learning tasks, and the metrics that evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.local.requests import Reduction
    from rayfl.tasks.metrics.metric import Metric
    from rayfl.tasks.supervised import Classification, Multilabel, NextSymbol, Regression, Segmentation
    from rayfl.tasks.task import Task

__all__ = [
    "Classification",
    "Metric",
    "Multilabel",
    "NextSymbol",
    "Reduction",
    "Regression",
    "Segmentation",
    "Task",
]

_HOMES = {
    "Classification": "rayfl.tasks.supervised",
    "Metric": "rayfl.tasks.metrics.metric",
    "Multilabel": "rayfl.tasks.supervised",
    "NextSymbol": "rayfl.tasks.supervised",
    "Reduction": "rayfl.local.requests",
    "Regression": "rayfl.tasks.supervised",
    "Segmentation": "rayfl.tasks.supervised",
    "Task": "rayfl.tasks.task",
}

__getattr__ = lazy_names(__name__, _HOMES)

tasks = Registry(
    "task",
    {
        "classification": "rayfl.tasks.supervised:Classification",
        "multilabel": "rayfl.tasks.supervised:Multilabel",
        "regression": "rayfl.tasks.supervised:Regression",
        "segmentation": "rayfl.tasks.supervised:Segmentation",
        "next_symbol": "rayfl.tasks.supervised:NextSymbol",
        "simsiam": "rayfl.tasks.self_supervised:SimSiam",
        "orchestra": "rayfl.tasks.self_supervised:Orchestra",
        "moco": "rayfl.tasks.self_supervised:MoCo",
    },
)
