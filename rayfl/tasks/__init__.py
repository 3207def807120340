"""Learning tasks, one file each, and the metrics that evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names
from rayfl.registry import Registry

if TYPE_CHECKING:
    from rayfl.local.objective import Reduction
    from rayfl.tasks.classification import Classification
    from rayfl.tasks.metrics.metric import Metric
    from rayfl.tasks.multilabel import Multilabel
    from rayfl.tasks.next_symbol import NextSymbol
    from rayfl.tasks.regression import Regression
    from rayfl.tasks.segmentation import Segmentation
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
    "Classification": "rayfl.tasks.classification",
    "Metric": "rayfl.tasks.metrics.metric",
    "Multilabel": "rayfl.tasks.multilabel",
    "NextSymbol": "rayfl.tasks.next_symbol",
    "Reduction": "rayfl.local.objective",
    "Regression": "rayfl.tasks.regression",
    "Segmentation": "rayfl.tasks.segmentation",
    "Task": "rayfl.tasks.task",
}

__getattr__ = lazy_names(__name__, _HOMES)

tasks = Registry(
    "task",
    {
        "classification": "rayfl.tasks.classification:Classification",
        "multilabel": "rayfl.tasks.multilabel:Multilabel",
        "regression": "rayfl.tasks.regression:Regression",
        "segmentation": "rayfl.tasks.segmentation:Segmentation",
        "next_symbol": "rayfl.tasks.next_symbol:NextSymbol",
        "simsiam": "rayfl.tasks.simsiam:SimSiam",
        "orchestra": "rayfl.tasks.orchestra:Orchestra",
        "moco": "rayfl.tasks.moco:MoCo",
    },
)
