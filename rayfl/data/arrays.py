"""A user's own arrays as a data set."""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.errors import DataError


def dataset_of_arrays(name: str, loaded: Any) -> Dataset:
    """Makes a data set of (train_x, train_y, test_x, test_y), numpy arrays or anything that numpy can read.

    Args:
        name: The `data.name` that gave them, for messages.
        loaded: What it gave.

    Returns:
        A data set with as many classes as the largest label says.

    Raises:
        DataError: Something else; labels that are not integers from 0; or a label so large that it cannot number a
            class.
    """
    try:
        train_x, train_y, test_x, test_y = (np.asarray(part) for part in loaded)
    except Exception as error:  # numpy hands on whatever a strange object raises
        raise DataError(
            f"data.name: '{name}' gave an object of type {type(loaded).__name__}, which is neither a "
            "rayfl.data.dataset.Dataset nor arrays (train_x, train_y, test_x, test_y) "
            f"({' '.join(str(error).split())})"
        ) from error
    for label, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or not len(y):
            raise DataError(
                f"data.name: '{name}': {label}_y must be a vector of integer class labels, not {y.dtype}{list(y.shape)}"
            )
        if not x.ndim:
            raise DataError(f"data.name: '{name}': {label}_x is a single value, not an array with a row per sample")
        if y.min() < 0:
            raise DataError(f"data.name: '{name}': {label}_y has the label {y.min()}; classes are numbered from 0")
    largest = int(max(train_y.max(), test_y.max()))
    samples = len(train_y) + len(test_y)
    if largest >= max(1000, samples):
        raise DataError(
            f"data.name: '{name}': a label is {largest}, which would make {largest + 1} classes for {samples} samples; "
            "number the classes from 0 without gaps, as numpy.unique(labels, return_inverse=True) does"
        )
    return Dataset(
        name=name,
        train=Samples(train_x, train_y.astype(np.int64)),
        test=Samples(test_x, test_y.astype(np.int64)),
        num_classes=largest + 1,
        provenance=Provenance("arrays", f"arrays from {name}"),
    )
