"""Metrics by name: rayfl's own, those of torchmetrics, or your own."""

from rayfl.config.registry import Registry

metrics = Registry(
    "metric",
    {
        "accuracy": "rayfl.tasks.metrics.outputs:Accuracy",
        "top_k": "rayfl.tasks.metrics.outputs:TopKAccuracy",
        "top_5": "rayfl.tasks.metrics.outputs:top_5",
        "perplexity": "rayfl.tasks.metrics.outputs:Perplexity",
        "knn": "rayfl.tasks.metrics.features:KNN",
        "linear_probe": "rayfl.tasks.metrics.features:LinearProbe",
        "spread": "rayfl.tasks.metrics.outputs:Spread",
        "macro_f1": "rayfl.tasks.metrics.shipped:macro_f1",
        "micro_f1": "rayfl.tasks.metrics.shipped:micro_f1",
        "balanced_accuracy": "rayfl.tasks.metrics.shipped:balanced_accuracy",
        "recall": "rayfl.tasks.metrics.by_class:Recall",
        "precision": "rayfl.tasks.metrics.by_class:Precision",
        "f1": "rayfl.tasks.metrics.by_class:F1",
        "auroc": "rayfl.tasks.metrics.shipped:auroc",
        "average_precision": "rayfl.tasks.metrics.shipped:average_precision",
        "calibration_error": "rayfl.tasks.metrics.shipped:calibration_error",
        "mean_iou": "rayfl.tasks.metrics.shipped:mean_iou",
        "mse": "rayfl.tasks.metrics.shipped:mse",
        "rmse": "rayfl.tasks.metrics.shipped:rmse",
        "mae": "rayfl.tasks.metrics.shipped:mae",
        "r2": "rayfl.tasks.metrics.outputs:R2",
    },
)

BY_CLASS = ("recall", "precision", "f1")
"""Those that report every class too, and count the confusion matrix."""
