"""What a network and its loss return for a tried batch, with remedies for the rest; and whether it comes again."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rayfl.config.registry import asks_for, takes_option
from rayfl.config.section import Named
from rayfl.data.batches import Batch, BatchSource
from rayfl.data.client_rows import known_labels
from rayfl.data.store import ShardStore
from rayfl.data.tensors import Input
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.errors import ScenarioError
from rayfl.local.requests import Reduction
from rayfl.models import models
from rayfl.models.attributes import Attribute, Values
from rayfl.tasks.task import Task

CLASSES = 100
"""Classes whose losses are tried."""


def num_outputs_of(task: Task, store: ShardStore) -> int:
    """The number of outputs that a task needs, for every set that is evaluated.

    Raises:
        DataError: The labels do not fit the task.
        ScenarioError: It is no integer.
    """
    labels = store.known_labels
    numbers = [task.num_outputs(labels, store.num_classes)]
    if labels.ndim > 1 and labels.dtype.kind in "ui":  # maps and sequences, whose classes no set has counted
        others = (store.test, *(part.samples for part in store.held_out.values()))
        numbers += [task.num_outputs(known_labels(one.y), store.num_classes) for one in others if len(one)]
    try:
        return max(map(operator.index, numbers))
    except TypeError:
        raise ScenarioError(f"task '{task.name}': num_outputs must return an integer (got {numbers[0]!r})") from None


def check_outputs(outputs: Any, y: torch.Tensor, task: Task, num_outputs: int, where: str, width: str = "") -> None:
    """Checks what a network returned for a batch.

    Args:
        outputs: What it returned.
        y: The labels of the batch.
        task: The task.
        num_outputs: Number of outputs that the task needs.
        where: The network, for messages.
        width: The remedy for outputs of another width.

    Raises:
        ScenarioError: It is no tensor, or has a shape that the task cannot use.
    """
    if not isinstance(outputs, torch.Tensor):
        raise ScenarioError(f"{where}: its forward returns a {type(outputs).__name__}; it must return a tensor")
    shape, allowed = list(outputs.shape), task.output_shapes(y, num_outputs)
    if not any(_fits(shape, one) for one in allowed):
        raise ScenarioError(
            f"{where}: {len(y)} inputs give an output of shape {shape}, not {' or '.join(map(str, allowed))}{width}"
        )


def _fits(shape: Sequence[int], allowed: Sequence[int]) -> bool:
    return len(shape) == len(allowed) and all(there in (-1, here) for here, there in zip(shape, allowed, strict=True))


def check_scalar(loss: Any, task: Task) -> None:
    """Checks what a task's loss or objective returned in a step of training.

    Raises:
        ScenarioError: It is no scalar tensor.
    """
    if not isinstance(loss, torch.Tensor) or loss.ndim:
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise ScenarioError(f"task '{task.name}': the loss of a batch is {what}; it must be a scalar tensor")


def wrong_reduction(task: Task, outputs: torch.Tensor, y: torch.Tensor, num_classes: int | None) -> str:
    """Compares a loss by every reduction: training minimises the mean, and evaluation divides the sum by `total`.

    Args:
        task: The task.
        outputs: Outputs of a batch.
        y: Its labels. Other classes are tried too, since two samples may have the same weight.
        num_classes: Number of classes; None if the labels are not classes.

    Returns:
        What is wrong and the remedy; empty if they agree.
    """
    if num_classes and y.ndim == 1:
        y = torch.cat([y, torch.arange(min(num_classes, CLASSES), dtype=y.dtype)])
        outputs = outputs[torch.arange(len(y)) % len(outputs)]

    def loss(reduction: Reduction) -> torch.Tensor:
        with generators_restored():
            return task.loss(outputs, y, reduction)

    mean, summed, divisor = float(loss("mean")), float(loss("sum")), float(task.divisor(y))
    if math.isnan(mean):
        return ""
    if not _same(summed, mean * divisor):
        if _same(summed, mean):
            return "loss ignores reduction; return the sum over samples for 'sum'"
        divides = f"loss for 'mean' divides the sum of {len(y)} samples by {summed / (mean or math.nan):.4g}"
        remedy = "override total, correct 'sum', or move what is no sum over samples to objective"
        return f"{divides}, and total is {divisor:.4g}; {remedy}"
    if not task.per_sample or type(task).objective is not Task.objective:
        return ""
    try:
        losses = loss("none")
    except Exception:  # reported where the losses of samples are needed
        return ""
    if losses.shape == y.shape[:1] and _same(float(losses.sum()), summed):
        return ""
    return "for 'none' loss must return one value per sample, with the sum of 'sum'; or set per_sample = False"


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)


def shapes_of(x: Input) -> str:
    """The shapes of a batch's inputs, with their names if there are several."""
    return ", ".join(f"{name} {list(tensor.shape)}".strip() for name, tensor in tensors_of(x).items())


def tensors_of(x: Input) -> dict[str, torch.Tensor]:
    """A batch's inputs by name; a single one has the empty name."""
    return x if isinstance(x, dict) else {"": x}


def how_to_set_width(network: Named, num_outputs: int, key: str) -> str:
    """Returns a hint if the constructor takes the number of classes and did not get it, or got a different one."""
    target = models.resolve(network.name)
    is_given = asks_for(target, "num_classes") and "num_classes" not in network.options
    return f"; set {key}.num_classes = {num_outputs}" if takes_option(target, "num_classes") and not is_given else ""


def keeps_state(attribute: Attribute, draws: bool, where: str, task: str) -> str:
    """Says what to do about an attribute of a network or a task that carries something from batch to batch.

    Args:
        attribute: The attribute.
        draws: Whether it is a generator of random numbers.
        where: Description of the network.
        task: Name of the task.
    """
    owner, name = attribute
    what = (
        f"its attribute '{name}' keeps state from batch to batch, which would pass from client to client and from "
        "training to evaluation"
    )
    if draws:
        remedy = "draw from PyTorch's global generator, which rayfl seeds for every client update"
    elif owner == "task":
        remedy = "keep it in the client's state (client_state), or compute it anew in every batch"
    else:
        remedy = (
            "make it a buffer (register_buffer with an initial tensor; with persistent=False every client update "
            "starts anew), or set it anew in every forward"
        )
    whose = f"task '{task}'" if owner == "task" else where
    return f"{whose}: {what}; {remedy}"


@dataclass(frozen=True)
class TriedBatch:
    """A tried batch.

    Attributes:
        results: What came out: outputs, loss, norm of the gradient.
        attributes: What attributes held afterwards.
    """

    results: Sequence[torch.Tensor]
    attributes: Values


class TaskError(Exception):
    """The task's own code raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error if isinstance(error, Exception) else RuntimeError(str(error))


@contextmanager
def task_errors() -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise TaskError(error) from None


@contextmanager
def generators_restored() -> Iterator[None]:
    """Seeds the global generators of PyTorch, NumPy and Python within the block, and restores them afterwards."""
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        of_numpy, of_python = np.random.get_state(), random.getstate()  # noqa: NPY002 - users' code may draw from it
        torch.default_generator.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        try:
            yield
        finally:
            np.random.set_state(of_numpy)  # noqa: NPY002
            random.setstate(of_python)


def same_results(one: TriedBatch, other: TriedBatch) -> bool:
    return len(one.results) == len(other.results) and all(
        first.shape == second.shape and torch.allclose(first, second, rtol=1e-4, atol=1e-5, equal_nan=True)
        for first, second in zip(one.results, other.results, strict=True)
    )


def resized_batches(source: BatchSource, store: ShardStore, shapes: str) -> Iterator[Batch]:
    """Yields two training samples as each view augments them, if augmentation changes the inputs' shapes."""
    rows = np.arange(min(2, len(store.train)))
    for view in range(len(store.augmentations) if source.varies else 0):
        for x, y in source.training_batches(rows, 2, np.random.default_rng(0), view=view):
            if shapes_of(x) != shapes:
                yield x, y
