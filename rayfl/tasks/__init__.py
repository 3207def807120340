"""Learning tasks, and the metrics that evaluate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.config.registry import Registry
from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.local.requests import Reduction as Reduction
    from rayfl.tasks.metrics.metric import Metric as Metric
    from rayfl.tasks.supervised import Classification as Classification
    from rayfl.tasks.supervised import Multilabel as Multilabel
    from rayfl.tasks.supervised import NextSymbol as NextSymbol
    from rayfl.tasks.supervised import Regression as Regression
    from rayfl.tasks.supervised import Segmentation as Segmentation
    from rayfl.tasks.task import Task as Task
else:
    __getattr__, __dir__ = lazy_names(__name__)


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
