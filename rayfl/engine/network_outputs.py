"""Checks the shape of what a network returns, and names the remedy for another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rayfl.config.section import Named
from rayfl.data.collation import Input
from rayfl.errors import ScenarioError
from rayfl.models import models
from rayfl.registry import asks_for, takes_option
from rayfl.tasks.task import Task


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


def shapes_of(x: Input) -> str:
    """The shapes of a batch's inputs, with their names if there are several."""
    return ", ".join(f"{name} {list(tensor.shape)}".strip() for name, tensor in tensors_of(x).items())


def tensors_of(x: Input) -> dict[str, torch.Tensor]:
    """A batch's inputs by name; a single one has the empty name."""
    return x if isinstance(x, dict) else {"": x}


def how_to_set_width(network: Named, num_outputs: int, key: str) -> str:
    """Returns a hint if the constructor takes the number of classes and did not get it, or got a different one."""
    target = models.resolve(network.name)
    told = asks_for(target, "num_classes") and "num_classes" not in network.options
    return f"; set {key}.num_classes = {num_outputs}" if takes_option(target, "num_classes") and not told else ""
