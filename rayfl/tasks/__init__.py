"""What is learned: one file per task, and the metrics that say how well."""

from rayfl.registry import Registry

tasks = Registry(
    "task",
    {
        "classification": "rayfl.tasks.classification:Classification",
        "multilabel": "rayfl.tasks.multilabel:Multilabel",
        "regression": "rayfl.tasks.regression:Regression",
        "segmentation": "rayfl.tasks.segmentation:Segmentation",
        "next_symbol": "rayfl.tasks.next_symbol:NextSymbol",
    },
)
