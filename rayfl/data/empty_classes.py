"""Classes of which nobody trains on a sample: often labels that are not numbered from 0 without gaps."""

from __future__ import annotations

import numpy as np

from rayfl.data.checking import are_class_labels
from rayfl.data.inputs import TextWindows
from rayfl.data.random_order import listed
from rayfl.data.store import ShardStore


def empty_classes(store: ShardStore) -> str:
    """Says in one line which classes below the largest training label have no sample, and what may be wrong.

    Returns:
        "" if there are none, labels are no classes, or they are symbols of a text, which may lack some.
    """
    labels, classes = store.train.y, store.num_classes
    if not are_class_labels(labels, classes) or isinstance(store.train.x, TextWindows):
        return ""
    missing = np.flatnonzero(np.bincount(labels.astype(np.int64, copy=False)) == 0)
    if not len(missing):
        return ""
    remedy = (
        "if labels count from 1, subtract 1"
        if missing.tolist() == [0]
        else "unless that is meant, number them without gaps, as numpy.unique(labels, return_inverse=True) does"
    )
    plural = "es" if len(missing) > 1 else ""
    return f"no training samples of class{plural} {listed(missing)}, of {classes} numbered from 0; {remedy}"
