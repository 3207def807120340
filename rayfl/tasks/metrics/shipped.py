"""Built-in metrics that torchmetrics computes."""

from __future__ import annotations

from typing import Any, Literal

import torchmetrics
from pydantic import PositiveInt

from rayfl.errors import ScenarioError
from rayfl.tasks.task import Kind


def macro_f1(kind: Kind | None, num_outputs: int, ignored_label: int | None = None) -> torchmetrics.Metric:
    """F1 score, averaged over classes or labels."""
    return _classification(torchmetrics.F1Score, kind, num_outputs, ignored_label, average="macro")


def micro_f1(kind: Kind | None, num_outputs: int, ignored_label: int | None = None) -> torchmetrics.Metric:
    """F1 score over all decisions together."""
    return _classification(torchmetrics.F1Score, kind, num_outputs, ignored_label, average="micro")


def balanced_accuracy(kind: Kind | None, num_outputs: int, ignored_label: int | None = None) -> torchmetrics.Metric:
    """Recall, averaged over classes or labels."""
    return _classification(torchmetrics.Recall, kind, num_outputs, ignored_label, average="macro")


def auroc(
    kind: Kind | None,
    num_outputs: int,
    ignored_label: int | None = None,
    thresholds: PositiveInt | None = None,
) -> torchmetrics.Metric:
    """Area under the ROC curve, averaged over classes or labels.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes or labels.
        ignored_label: The label that is excluded.
        thresholds: Number of thresholds that approximate the curve; by default it is exact, and all predictions are
            kept.
    """
    return _classification(torchmetrics.AUROC, kind, num_outputs, ignored_label, average="macro", thresholds=thresholds)


def average_precision(
    kind: Kind | None,
    num_outputs: int,
    ignored_label: int | None = None,
    thresholds: PositiveInt | None = None,
) -> torchmetrics.Metric:
    """Area under the precision-recall curve, averaged over classes or labels.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes or labels.
        ignored_label: The label that is excluded.
        thresholds: As for `auroc`: number of thresholds that approximate the curve; by default it is exact.
    """
    return _classification(
        torchmetrics.AveragePrecision, kind, num_outputs, ignored_label, average="macro", thresholds=thresholds
    )


def calibration_error(
    kind: Kind | None,
    num_outputs: int,
    ignored_label: int | None = None,
    bins: PositiveInt = 15,
    norm: Literal["l1", "l2", "max"] = "l1",
) -> torchmetrics.Metric:
    """Expected (l1), root-mean-square (l2) or maximum calibration error of the most probable class.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes.
        ignored_label: The label that is excluded.
        bins: Number of bins of equal width that probabilities are sorted into.
        norm: How the errors of the bins are put together: `l1`, `l2` or `max`.
    """
    if kind != "multiclass":
        raise ScenarioError("calibration_error needs a task with one class per sample")
    return torchmetrics.classification.MulticlassCalibrationError(
        num_outputs, n_bins=bins, norm=norm, ignore_index=ignored_label
    )


def mean_iou(kind: Kind | None, num_outputs: int, ignored_label: int | None = None) -> torchmetrics.Metric:
    """Intersection over union, averaged over classes, from the confusion matrix of all test samples."""
    return _classification(torchmetrics.JaccardIndex, kind, num_outputs, ignored_label, average="macro")


def mse(kind: Kind | None) -> torchmetrics.Metric:
    """Mean squared error."""
    return _regression(torchmetrics.MeanSquaredError(), kind)


def rmse(kind: Kind | None) -> torchmetrics.Metric:
    """Root of the mean squared error."""
    return _regression(torchmetrics.MeanSquaredError(squared=False), kind)


def mae(kind: Kind | None) -> torchmetrics.Metric:
    """Mean absolute error."""
    return _regression(torchmetrics.MeanAbsoluteError(), kind)


def r2(kind: Kind | None) -> torchmetrics.Metric:
    """Coefficient of determination."""
    return _regression(torchmetrics.R2Score(), kind)


def _classification(
    metric: Any, kind: Kind | None, num_outputs: int, ignored: int | None, **options: Any
) -> torchmetrics.Metric:
    if kind is None:
        raise ScenarioError("needs a task with classes")
    made: torchmetrics.Metric = metric(
        task=kind, num_classes=num_outputs, num_labels=num_outputs, ignore_index=ignored, **options
    )
    return made


def _regression(metric: torchmetrics.Metric, kind: Kind | None) -> torchmetrics.Metric:
    if kind is not None:
        raise ScenarioError("needs a task with real-valued targets")
    return metric
