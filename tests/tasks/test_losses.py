"""The losses of the shipped tasks against sums written out in NumPy, in float64."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayfl.errors import DataError
from rayfl.local import TrainingBatch
from rayfl.tasks.supervised import Classification, Multilabel, NextSymbol, Regression, Segmentation
from rayfl.tasks.task import Task

RNG = np.random.default_rng(5)


def log_softmax(logits: np.ndarray, axis: int) -> np.ndarray:
    shifted = logits - logits.max(axis=axis, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return result


def cross_entropies(logits: np.ndarray, labels: np.ndarray, axis: int) -> np.ndarray:
    found = np.take_along_axis(log_softmax(logits, axis), np.expand_dims(labels, axis), axis)
    return -np.squeeze(found, axis)


def check(task: Task, outputs: np.ndarray, targets: np.ndarray, per_sample: np.ndarray, divisor: float) -> None:
    """Compares all reductions; the mean is the sum divided by the total."""
    made = torch.from_numpy(outputs), torch.from_numpy(targets)
    assert task.loss(*made, "none").numpy() == pytest.approx(per_sample)
    assert float(task.loss(*made, "sum")) == pytest.approx(per_sample.sum())
    assert float(task.loss(*made)) == pytest.approx(per_sample.sum() / divisor)
    assert float(task.total(made[1])) == pytest.approx(divisor)
    batch = TrainingBatch(torch.nn.Identity(), cast(Any, None), made[:1], made[1], lambda _: [])
    assert float(task.objective(batch)) == pytest.approx(per_sample.sum() / divisor)


def test_classification_is_cross_entropy_to_the_bit() -> None:
    outputs, targets = torch.randn(6, 4), torch.tensor([0, 3, 1, 1, 2, 0])
    assert torch.equal(Classification().loss(outputs, targets), F.cross_entropy(outputs, targets))


def test_class_weights_weigh_samples_and_divide_the_mean() -> None:
    outputs, targets = RNG.normal(size=(6, 3)).astype(np.float32), np.array([0, 2, 1, 1, 2, 0])
    weights = (1.0, 4.0, 0.5)
    own = np.array(weights)[targets]
    check(
        Classification(class_weights=weights), outputs, targets, own * cross_entropies(outputs, targets, 1), own.sum()
    )


def test_label_smoothing_mixes_in_the_uniform_distribution() -> None:
    outputs, targets = RNG.normal(size=(5, 4)), np.array([0, 3, 1, 1, 2])
    uniform = -log_softmax(outputs, 1).mean(axis=1)
    losses = 0.9 * cross_entropies(outputs, targets, 1) + 0.1 * uniform
    check(Classification(label_smoothing=0.1), outputs, targets, losses, 5)


def test_multilabel_is_the_mean_binary_cross_entropy_of_a_samples_labels() -> None:
    outputs, targets = RNG.normal(size=(5, 3)), RNG.integers(0, 2, size=(5, 3))
    chances = 1 / (1 + np.exp(-outputs))
    losses = -(targets * np.log(chances) + (1 - targets) * np.log(1 - chances))
    check(Multilabel(), outputs, targets.astype(np.float64), losses.mean(axis=1), 5)


@pytest.mark.parametrize(
    ("options", "distance"),
    [
        ({}, lambda d: d**2),
        ({"distance": "absolute"}, np.abs),
        (
            {"distance": "huber", "delta": 0.5},
            lambda d: np.where(np.abs(d) < 0.5, d**2 / 2, 0.5 * (np.abs(d) - 0.25)),
        ),
    ],
)
def test_regression_is_the_mean_distance_of_a_samples_values(options: dict, distance) -> None:  # type: ignore[no-untyped-def,type-arg]
    outputs, targets = (RNG.normal(size=(5, 2)).astype(np.float32) for _ in range(2))
    check(Regression(**options), outputs, targets, distance(outputs - targets).mean(axis=1), 5)


def test_regression_takes_a_column_of_outputs_for_a_vector_of_targets() -> None:
    outputs, targets = torch.randn(7, 1), torch.randn(7)
    assert float(Regression().loss(outputs, targets)) == pytest.approx(float(((outputs[:, 0] - targets) ** 2).mean()))


def test_segmentation_leaves_ignored_pixels_out() -> None:
    outputs, targets = RNG.normal(size=(3, 4, 5, 6)), RNG.integers(0, 4, size=(3, 5, 6))
    ignored = RNG.random(targets.shape) < 0.3
    losses = np.where(ignored, 0, cross_entropies(outputs, targets, 1)).sum(axis=(1, 2))
    check(Segmentation(ignore=9), outputs, np.where(ignored, 9, targets), losses, (~ignored).sum())


def test_next_symbol_takes_one_symbol_or_a_sequence_of_them() -> None:
    outputs, targets = RNG.normal(size=(3, 5, 4)), RNG.integers(0, 4, size=(3, 5))
    check(NextSymbol(), outputs, targets, cross_entropies(outputs, targets, 2).sum(axis=1), 15)
    check(NextSymbol(), outputs[:, 0], targets[:, 0], cross_entropies(outputs[:, 0], targets[:, 0], 1), 3)


@pytest.mark.parametrize("task", [Segmentation(ignore=1), NextSymbol(ignore=1)])
def test_a_batch_without_a_label_has_a_loss_of_zero(task: Task) -> None:
    outputs = torch.randn(2, 3, 4, 4) if task.class_dimension == 1 else torch.randn(2, 4, 3)
    targets = torch.ones((2, 4, 4) if task.class_dimension == 1 else (2, 4), dtype=torch.int64)
    assert float(task.loss(outputs, targets)) == 0


@pytest.mark.parametrize(
    ("task", "labels", "classes", "complaint"),
    [
        (Classification(), np.zeros(3), None, "task 'classification' needs integer class labels"),
        (Classification(), np.array([0.0, 1.0]), None, r"float64 labels of shape \[2\]; give y\.astype\('int64'\)$"),
        (Classification(), np.array([0.0, 0.5]), None, r"float64 labels of shape \[2\]$"),
        (Classification(), np.array([[0], [1]]), None, r"int64 labels of shape \[2, 1\]; give y\.ravel\(\)$"),
        (Classification(), np.array([[0.0], [2.0]]), None, r"; give y\.ravel\(\)\.astype\('int64'\)$"),
        (Classification(), np.eye(3), None, r"shape \[3, 3\]; they look one-hot: give y\.argmax\(1\)$"),
        (Classification(), np.array([[1, 1], [0, 1]]), None, r"int64 labels of shape \[2, 2\]$"),
        (NextSymbol(), np.array([[0.0, 2.0]]), None, r"the data has float64 labels; give y\.astype\('int64'\)$"),
        (Classification(class_weights=(1.0,)), np.array([0, 1]), 2, "task.class_weights: 1 weights, but .* 2 classes"),
        (Multilabel(), np.array([[0, 2]]), None, "zeros and ones"),
        (Regression(), np.zeros((2, 2, 2)), None, r"targets \[n\] or \[n, d\]"),
        (Segmentation(), np.array([0, 1]), 2, r"\[n, height, width\]"),
        (Segmentation(), np.array([[[0, 5]]]), 3, "labels run from 0 to 5, allowed are 0 to 2"),
        (Segmentation(), np.array([[[255]]]), None, "all labels are 255, which is ignored"),
        (NextSymbol(), np.array([0.5]), None, "needs integer class labels"),
    ],
)
def test_labels_that_do_not_fit_are_rejected(
    task: Task, labels: np.ndarray, classes: int | None, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        task.num_outputs(labels, classes)


def test_maps_and_sequences_say_themselves_how_many_classes_there_are() -> None:
    assert Segmentation().num_outputs(np.array([[[0, 3], [255, 1]]]), None) == 4
    assert NextSymbol(ignore=9).num_outputs(np.array([[0, 6, 9]]), None) == 7
