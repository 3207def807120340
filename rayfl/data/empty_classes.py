"""Finds classes without training samples, often a sign that labels are not numbered from 0 without gaps."""

from __future__ import annotations

import numpy as np

from rayfl.data.checking import are_class_labels
from rayfl.data.inputs import TextWindows
from rayfl.data.random_order import listed
from rayfl.data.store import ShardStore


def empty_classes(store: ShardStore) -> str:
    """Describes in one line the classes without training samples and a possible remedy.

    Returns:
        "" if there are none, or if labels are not classes or are symbols of a text, which need not contain all.
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
        else "unless intended, number them without gaps, for example with numpy.unique(labels, return_inverse=True)"
    )
    plural = "es" if len(missing) > 1 else ""
    return f"no training samples of class{plural} {listed(missing)}, of {classes} numbered from 0; {remedy}"
