"""Checks that the samples of a data set are consistent and usable by a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rayfl.data.inputs import Fields, Inputs, Pieces, Ragged, kind_of, named_parts
from rayfl.errors import DataError

if TYPE_CHECKING:
    from rayfl.data.dataset import Dataset

MAX_CLASSES = 1_000_000
"""More classes than this are a mistake: the labels were probably not meant as classes."""

RESERVED = ("train", "test", "validation", "client_test", "server")
"""Names that additional test sets cannot have."""


def check_dataset(data: Dataset) -> None:
    """Checks a data set as its source returned it.

    Raises:
        DataError: Names the data set and the part that is wrong.
    """
    name = data.name
    if data.num_classes is not None and not 1 <= data.num_classes <= MAX_CLASSES:
        raise DataError(f"{name}: has {data.num_classes} classes; allowed are 1 to {MAX_CLASSES}")
    for test in data.tests:
        if not test.isidentifier() or test in RESERVED:
            raise DataError(
                f"{name}: '{test}' cannot name a test set; use letters, digits and underscores, but none of "
                + ", ".join(RESERVED)
            )
    for part, samples in data.parts.items():
        if len(samples.x) != len(samples.y):
            raise DataError(f"{name}: {part} has {len(samples.x)} inputs but {len(samples.y)} labels")
        if not len(samples):
            raise DataError(f"{name}: {part} is empty")
        _check_labels(samples.y, data.num_classes, f"{name}: {part}")
    for part, samples in data.parts.items():
        _check_inputs(samples.x, f"{name}: {part}")
    for part, samples in data.parts.items():
        kinds = [kind_of(found.x) for found in (data.train, samples)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{name}: train inputs are {kinds[0]}, {part} inputs {kinds[1]}")
        labels = [f"{list(found.y.shape[1:])} {found.y.dtype.kind == 'f'}" for found in (data.train, samples)]
        if labels[0] != labels[1]:
            shapes = [f"{found.y.dtype}{list(found.y.shape)}" for found in (data.train, samples)]
            raise DataError(f"{name}: train labels are {shapes[0]}, {part} labels {shapes[1]}")
    x = data.train.x
    if not isinstance(x, Pieces | Fields) and x.dtype == np.uint8 and x.ndim == 3:
        raise DataError(f"{name}: images must be [n, height, width, channels]; {kind_of(x)} has no channels")


def are_class_labels(labels: np.ndarray, num_classes: int | None) -> bool:
    """Whether every label is a single class."""
    return num_classes is not None and labels.ndim == 1 and labels.dtype.kind in "ui"


def number_texts(labels: np.ndarray) -> str:
    """The remedy for labels that are strings, starting with "; "; "" for others."""
    if not labels.size or not isinstance(labels.flat[0], str | bytes):
        return ""
    return (
        "; number the classes: classes, train_y = numpy.unique(train_y, return_inverse=True), then "
        "test_y = numpy.searchsorted(classes, test_y)"
    )


def _check_labels(y: np.ndarray, num_classes: int | None, what: str) -> None:
    described = f"{what} labels are {y.dtype}{list(y.shape)}"
    if y.dtype.kind not in "uif" or not y.dtype.isnative:
        raise DataError(
            f"{described}; allowed are integers and floating point numbers in this machine's byte order"
            + number_texts(y)
        )
    if y.dtype.kind == "f" and not _is_finite(y):
        raise DataError(f"{what} labels hold values that are not finite (NaN or infinity)")
    if num_classes is None or y.ndim > 1:
        return
    if y.dtype.kind == "f":
        raise DataError(
            f"{described}, but {num_classes} classes need a vector of integers; use num_classes = None for other labels"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise DataError(f"{what} labels run from {low} to {high}, allowed are 0 to {num_classes - 1}")


def _check_inputs(x: Inputs, what: str) -> None:
    kinds = "uifb" if isinstance(x, Fields) else "uif"
    for name, part in named_parts(x).items():
        inputs = f"{what} inputs" + (f" '{name}'" if name else "")
        if part.dtype.kind not in kinds or not part.dtype.isnative:
            raise DataError(
                f"{inputs} are {part.dtype}; allowed are integers and floating point numbers in this machine's byte "
                "order"
            )
        values = part.values if isinstance(part, Ragged) else part
        if isinstance(values, np.ndarray) and values.dtype.kind == "f" and not _is_finite(values):
            raise DataError(f"{inputs} hold values that are not finite (NaN or infinity)")


def _is_finite(values: np.ndarray) -> bool:
    return not values.size or bool(np.isfinite([np.min(values), np.max(values)]).all())
