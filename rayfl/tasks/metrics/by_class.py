"""Recall, precision and F1 of every class, from the counts of the confusion matrix.

As with other metrics here, the labels alone decide what is defined: a class without samples has no score, and one that
has samples and is never predicted has a precision and an F1 of 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics.metric import Metric, State
from rayfl.tasks.task import Kind

MOST_CLASSES = 100
"""Each class is a column of the metrics."""


class ClassMetric(Metric):
    """A score of every class, and its mean over the classes that have samples; undefined if there is none.

    A state has the pairs of label and predicted class that occur, and how often each does, so that those of many small
    clients stay small. Counts are integers, and their sums exact.

    Args:
        kind: The task's kind of classification.
        num_outputs: Number of classes.
        class_dimension: The dimension of the outputs that indexes the classes.
        ignored_label: The label that is excluded.
    """

    higher_is_better = True
    is_share = True

    def __init__(
        self, kind: Kind | None, num_outputs: int, class_dimension: int, ignored_label: int | None = None
    ) -> None:
        if kind != "multiclass":
            raise ScenarioError("needs a task with one class per label")
        if num_outputs > MOST_CLASSES:
            raise ScenarioError(
                f"reports every class in a column, at most {MOST_CLASSES}, and there are {num_outputs:,} classes; use "
                "balanced_accuracy or macro_f1, which report the mean over classes"
            )
        self._number, self._dimension, self._ignored = num_outputs, class_dimension, ignored_label

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        predicted, labels = outputs.argmax(dim=self._dimension).cpu().numpy(), targets.cpu().numpy()
        if self._ignored is not None:
            predicted, labels = predicted[labels != self._ignored], labels[labels != self._ignored]
        if labels.size and not 0 <= labels.min() <= labels.max() < self._number:
            raise RayflError(f"labels run from {labels.min()} to {labels.max()}, of {self._number} classes")
        counts = np.bincount(labels.ravel().astype(np.int64) * self._number + predicted.ravel())
        pairs = np.flatnonzero(counts)
        return {"pairs": pairs, "counts": counts[pairs]}

    def merged(self, states: Sequence[State]) -> State:
        """Adds up the counts of equal pairs."""
        pairs, place = np.unique(np.concatenate([state["pairs"] for state in states]), return_inverse=True)
        counts = np.zeros(len(pairs), np.int64)
        np.add.at(counts, place, np.concatenate([state["counts"] for state in states]))
        return {"pairs": pairs, "counts": counts}

    def confusion(self, state: State) -> np.ndarray:
        """The confusion matrix, int64 [classes, classes]: samples by label, then by predicted class."""
        counts = np.zeros(self._number**2, np.int64)
        counts[state["pairs"]] = state["counts"]
        return counts.reshape(self._number, self._number)

    def value(self, state: State) -> float | None:
        _, scores = self._defined(state)
        return math.fsum(scores) / len(scores) if scores else None

    def parts(self, state: State) -> Mapping[str, float | None]:
        """The score of every class, by its number; None for a class without samples."""
        labels, scores = self._defined(state)
        return {str(label): None for label in range(self._number)} | dict(zip(map(str, labels), scores, strict=True))

    def _defined(self, state: State) -> tuple[list[int], list[float]]:
        """The classes that have samples, and their scores."""
        labels, predictions = np.divmod(state["pairs"], self._number)
        right, labelled, predicted = np.zeros((3, self._number), np.int64)
        np.add.at(labelled, labels, state["counts"])
        np.add.at(predicted, predictions, state["counts"])
        same = labels == predictions
        right[labels[same]] = state["counts"][same]
        known = np.flatnonzero(labelled)
        return known.tolist(), self.score(right[known], labelled[known], predicted[known]).tolist()

    @abstractmethod
    def score(self, right: np.ndarray, labelled: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        """The scores of classes that have samples, float64 [n].

        Args:
            right: Their samples that are predicted right, int64 [n].
            labelled: Their samples, at least 1.
            predicted: Samples that are predicted as them.
        """


class Recall(ClassMetric):
    """The share of a class's samples that are predicted right: its accuracy. The mean is the balanced accuracy."""

    def score(self, right: np.ndarray, labelled: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.true_divide(right, labelled)
        return scores


class Precision(ClassMetric):
    """The share of the samples predicted as a class that belong to it; 0 if there are none."""

    def score(self, right: np.ndarray, labelled: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.true_divide(right, np.maximum(predicted, 1))
        return scores


class F1(ClassMetric):
    """The harmonic mean of a class's precision and recall. The mean over classes is the macro F1 score."""

    def score(self, right: np.ndarray, labelled: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        scores: np.ndarray = np.true_divide(2 * right, labelled + predicted)
        return scores
