"""Classes for partitioning if labels are not classes: quantiles, the largest entry of a vector, or a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeInt

from rayfl.config.section import Named
from rayfl.data.checks import MAX_CLASSES
from rayfl.data.named_functions import LABELINGS
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.wording import report_as_theirs

_EXPECTED = (
    "it is called as labels_by(labels) with all training labels; it returns a class for each, [n] integers from 0"
)


def quantiles(labels: np.ndarray, bins: Annotated[int, Field(ge=2)] = 10) -> np.ndarray:
    """Divides labels by value into classes of about equal size.

    Equal values are always in one class, so there are fewer classes if a value is frequent.

    Args:
        labels: [n] numbers.
        bins: Number of classes.

    Returns:
        [n] int64: the number of inner quantiles (1/bins, 2/bins, ...) that a label reaches, renumbered without gaps.

    Raises:
        ScenarioError: Labels are vectors or maps.
    """
    if labels.ndim != 1:
        raise ScenarioError(_shape("quantiles", "single numbers", labels))
    edges = np.quantile(labels.astype(np.float64), np.arange(1, bins) / bins)
    return _numbered(np.searchsorted(edges, labels.astype(np.float64), side="right"))


def argmax(labels: np.ndarray) -> np.ndarray:
    """Uses the index of the largest entry of each vector, or the first if there are several.

    Args:
        labels: [n, k].

    Raises:
        ScenarioError: Labels are not vectors.
    """
    if labels.ndim != 2:
        raise ScenarioError(_shape("argmax", "vectors [n, k]", labels))
    places: np.ndarray = labels.argmax(axis=1).astype(np.int64)
    return places


def column(labels: np.ndarray, index: NonNegativeInt) -> np.ndarray:
    """Uses one entry of each vector; its distinct values are the classes, in ascending order.

    Args:
        labels: [n, k].
        index: Index of the entry.

    Raises:
        ScenarioError: Labels are not vectors, or too short.
    """
    if labels.ndim != 2:
        raise ScenarioError(_shape("column", "vectors [n, k]", labels))
    if index >= labels.shape[1]:
        raise ScenarioError(
            f"data.labels_by.index: is {index}, but labels have {labels.shape[1]} entries, numbered from 0"
        )
    return _numbered(labels[:, index])


def build_labeling(chosen: Named) -> Callable[[np.ndarray], np.ndarray]:
    """Builds the function of a scenario from labels to classes [n] int64; its result is checked.

    Raises:
        ScenarioError: The name or an option is unknown, or the object is not callable.
    """
    what = f"data.labels_by: '{chosen.name}'"
    classify = LABELINGS.bound(chosen, "data.labels_by")

    def checked(labels: np.ndarray) -> np.ndarray:
        try:
            result: Any = classify(labels)
        except RayflError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything
            raise ScenarioError(report_as_theirs(error, what)) from None
        return _checked(result, len(labels), what)

    return checked


def _checked(result: Any, number: int, what: str) -> np.ndarray:
    try:
        classes = np.asarray(result)
    except Exception:  # an arbitrary object may raise anything when converted
        classes = np.empty(0, object)
    if classes.shape != (number,) or not np.issubdtype(classes.dtype, np.integer):
        seen = f"{classes.dtype}{list(classes.shape)}" if isinstance(result, np.ndarray) else type(result).__name__
        raise DataError(f"{what} returned {seen} for {number} labels; {_EXPECTED}")
    if classes.min() < 0 or classes.max() >= MAX_CLASSES:
        raise DataError(f"{what} returned classes from {classes.min()} to {classes.max()}; number them from 0")
    return classes.astype(np.int64, copy=False)


def _numbered(values: np.ndarray) -> np.ndarray:
    numbers: np.ndarray = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return numbers


def _shape(name: str, needed: str, labels: np.ndarray) -> str:
    return f"data.labels_by: '{name}' is for labels that are {needed}; these are {labels.dtype}{list(labels.shape)}"
