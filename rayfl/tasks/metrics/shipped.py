"""Built-in metrics that torchmetrics computes.

torchmetrics gives 0 for a class that the labels do not define. Here such a class is left out, decided by the labels
alone: a class that has samples and is never predicted counts with a score of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
import torchmetrics
from pydantic import PositiveInt

from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.adapted import Defined, TorchMetric
from rayfl.tasks.metrics.metric import State, higher_is
from rayfl.tasks.task import Kind

Predictions = Callable[[torch.Tensor], torch.Tensor]


@higher_is(True)
def macro_f1(
    kind: Kind | None, num_outputs: int, predictions: Predictions, ignored_label: int | None = None
) -> TorchMetric:
    """F1 score, averaged over the classes that have samples, or the labels that some sample has.

    Undefined if there is none.
    """
    return _classification(torchmetrics.F1Score, _supported, kind, num_outputs, predictions, ignored_label)


@higher_is(True)
def micro_f1(
    kind: Kind | None, num_outputs: int, predictions: Predictions, ignored_label: int | None = None
) -> TorchMetric:
    """F1 score over all decisions together. Undefined if no sample has a label."""

    def defined(state: State) -> np.ndarray:
        return np.array([_supported(state).any()])

    return _classification(
        torchmetrics.F1Score, defined, kind, num_outputs, predictions, ignored_label, average="micro"
    )


@higher_is(True)
def balanced_accuracy(
    kind: Kind | None, num_outputs: int, predictions: Predictions, ignored_label: int | None = None
) -> TorchMetric:
    """Recall, averaged over the classes that have samples, or the labels that some sample has.

    Undefined if there is none.
    """
    return _classification(torchmetrics.Recall, _supported, kind, num_outputs, predictions, ignored_label)


@higher_is(True)
def auroc(
    kind: Kind | None,
    num_outputs: int,
    predictions: Predictions,
    ignored_label: int | None = None,
    thresholds: PositiveInt | None = None,
) -> TorchMetric:
    """Area under the ROC curve, averaged over classes or labels.

    Classes without samples, and those that all samples have, have no curve and are left out. Undefined if none is left,
    such as for samples of a single class.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes or labels.
        predictions: Converts outputs to probabilities.
        ignored_label: The label that is excluded.
        thresholds: Number of thresholds that approximate the curve; by default it is exact, and all predictions are
            kept.
    """
    return _classification(
        torchmetrics.AUROC,
        _with_and_without(num_outputs),
        kind,
        num_outputs,
        predictions,
        ignored_label,
        thresholds=thresholds,
    )


@higher_is(True)
def average_precision(
    kind: Kind | None,
    num_outputs: int,
    predictions: Predictions,
    ignored_label: int | None = None,
    thresholds: PositiveInt | None = None,
) -> TorchMetric:
    """Area under the precision-recall curve, averaged over classes or labels.

    Classes without samples, and those that all samples have, are left out: of the latter, it is 1 for any model.
    Undefined if none is left, such as for samples of a single class.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes or labels.
        predictions: Converts outputs to probabilities.
        ignored_label: The label that is excluded.
        thresholds: As for `auroc`: number of thresholds that approximate the curve; by default it is exact.
    """
    return _classification(
        torchmetrics.AveragePrecision,
        _with_and_without(num_outputs),
        kind,
        num_outputs,
        predictions,
        ignored_label,
        thresholds=thresholds,
    )


@higher_is(False)
def calibration_error(
    kind: Kind | None,
    num_outputs: int,
    predictions: Predictions,
    ignored_label: int | None = None,
    bins: PositiveInt = 15,
    norm: Literal["l1", "l2", "max"] = "l1",
) -> TorchMetric:
    """Expected (l1), root-mean-square (l2) or maximum calibration error of the most probable class.

    Undefined without labels that count.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes.
        predictions: Converts outputs to probabilities.
        ignored_label: The label that is excluded.
        bins: Number of bins of equal width that probabilities are sorted into.
        norm: How the errors of the bins are put together: `l1`, `l2` or `max`.
    """
    if kind != "multiclass":
        raise ScenarioError("calibration_error needs a task with one class per sample")
    metric = torchmetrics.classification.MulticlassCalibrationError(
        num_outputs, n_bins=bins, norm=norm, ignore_index=ignored_label
    )
    return TorchMetric(metric, predictions, lambda state: np.array([len(state["accuracies"]) > 0]))


@higher_is(True)
def mean_iou(
    kind: Kind | None, num_outputs: int, predictions: Predictions, ignored_label: int | None = None
) -> TorchMetric:
    """Intersection over union, averaged over the classes that have samples, or the labels that some sample has.

    It comes from the confusion matrix of all test samples. Undefined if there is no such class.
    """

    def defined(state: State) -> np.ndarray:
        counts = state["confmat"]  # [target, predicted], or for every label
        has_samples: np.ndarray = (counts.sum(axis=1) if counts.ndim == 2 else counts[:, 1].sum(axis=1)) > 0
        return has_samples

    return _classification(torchmetrics.JaccardIndex, defined, kind, num_outputs, predictions, ignored_label)


@higher_is(False)
def mse(kind: Kind | None) -> torchmetrics.Metric:
    """Mean squared error. Always defined."""
    return _regression(torchmetrics.MeanSquaredError(), kind)


@higher_is(False)
def rmse(kind: Kind | None) -> torchmetrics.Metric:
    """Root of the mean squared error. Always defined."""
    return _regression(torchmetrics.MeanSquaredError(squared=False), kind)


@higher_is(False)
def mae(kind: Kind | None) -> torchmetrics.Metric:
    """Mean absolute error. Always defined."""
    return _regression(torchmetrics.MeanAbsoluteError(), kind)


def _classification(
    metric: Any,
    defined: Defined,
    kind: Kind | None,
    num_outputs: int,
    predictions: Predictions,
    ignored: int | None,
    average: str = "none",
    **options: Any,
) -> TorchMetric:
    if kind is None:
        raise ScenarioError("needs a task with classes")
    made: torchmetrics.Metric = metric(
        task=kind, num_classes=num_outputs, num_labels=num_outputs, ignore_index=ignored, average=average, **options
    )
    return TorchMetric(made, predictions, defined)


def _supported(state: State) -> np.ndarray:
    """The classes that have samples."""
    has_samples: np.ndarray = np.atleast_1d(state["tp"] + state["fn"]) > 0
    return has_samples


def _with_and_without(num_outputs: int) -> Defined:
    """The classes that some samples have and others do not have."""

    def defined(state: State) -> np.ndarray:
        if "confmat" in state:  # [threshold, class, target, predicted], the same targets at every threshold
            without, with_it = state["confmat"][0].sum(axis=2).T
        else:
            target = state["target"]
            is_class = target[:, None] == np.arange(num_outputs) if target.ndim == 1 else target == 1
            is_other = ~is_class if target.ndim == 1 else target == 0
            without, with_it = is_other.sum(axis=0), is_class.sum(axis=0)
        has_both: np.ndarray = (without > 0) & (with_it > 0)
        return has_both

    return defined


def _regression(metric: torchmetrics.Metric, kind: Kind | None) -> torchmetrics.Metric:
    if kind is not None:
        raise ScenarioError("needs a task with real-valued targets")
    return metric
