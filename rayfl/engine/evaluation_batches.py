"""Batches of test samples, with the views that the task's evaluation reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.local.evaluation_batch import EvaluationBatch
from rayfl.planning.slices import Slice
from rayfl.streams import stream
from rayfl.tasks.task import Task


def evaluation_batches(
    source: BatchSource, module: nn.Module, task: Task, part: Slice, size: int, seed: int
) -> Iterator[EvaluationBatch]:
    """Yields the batches of a slice.

    Args:
        source: Source of the samples.
        module: The evaluated network.
        task: The task, which sets the number of views.
        part: The slice.
        size: Number of samples per batch.
        seed: The data's seed. Together with a sample's set and batch it determines the sample's views, which are
            therefore the same in every round and on any host.
    """
    for first in range(part.start, part.stop, size):
        rows = slice(first, min(first + size, part.stop))
        x, y = source.batch(part.set, rows)
        yield EvaluationBatch(module, x, y, tuple(_views(source, task, part.set, rows, seed)))


def _views(source: BatchSource, task: Task, name: str, rows: slice, seed: int) -> list[Any]:
    if not task.evaluation_views:
        return []
    purpose, places = f"evaluation view of {name}", np.arange(rows.start, rows.stop)
    rngs = [stream(seed, purpose, view, rows.start, rows.stop) for view in range(task.evaluation_views)]
    ((views, _),) = source.training_views(places, len(places), rngs, name=name)
    return views
