"""Makes a batch of inputs that differ in length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rayfl.config.section import Named
from rayfl.data import collations
from rayfl.data.chosen_function import chosen_function
from rayfl.errors import RayflError, ScenarioError
from rayfl.user_code import report_as_theirs

Input = torch.Tensor | dict[str, torch.Tensor]
"""The inputs of a batch: one tensor, or keyword arguments of the network's `forward`."""

Collation = Callable[[list[Any]], Input]

_EXPECTED = (
    "a collation is called as collate(inputs) with a list of inputs, one per sample, each an array or a dictionary of "
    "arrays; it returns a tensor or a dictionary of tensors with one row per sample"
)


def pad(inputs: Sequence[np.ndarray], value: float = 0) -> torch.Tensor:
    """Pads every input at its end to the length of the longest.

    Args:
        inputs: [length_i, ...] arrays of one dtype.
        value: The padding value.

    Returns:
        A tensor [n, longest, ...] of the same dtype.

    Raises:
        ScenarioError: The inputs are dictionaries.
    """
    if not isinstance(inputs[0], np.ndarray):
        raise ScenarioError("data.collate: 'pad' is for single inputs, not for inputs by name; write your own")
    longest = max(len(piece) for piece in inputs)
    padded = np.full((len(inputs), longest, *inputs[0].shape[1:]), value, inputs[0].dtype)
    for row, piece in zip(padded, inputs, strict=True):
        row[: len(piece)] = piece
    return torch.from_numpy(padded)


def build_collation(chosen: Named) -> Collation:
    """Builds the collation that a scenario names; its result is checked for every batch.

    Raises:
        ScenarioError: The name or an option is unknown, or the object is not callable.
    """
    what = f"data.collate: '{chosen.name}'"
    collate = chosen_function(collations, chosen, "data.collate", _EXPECTED)

    def checked(inputs: list[Any]) -> Input:
        try:
            found = collate(inputs)
        except RayflError:
            raise
        except (Exception, SystemExit) as error:
            headline, _, traceback = report_as_theirs(error, what).partition("\n")
            raise ScenarioError(f"{headline}; {_EXPECTED}" + (f"\n{traceback}" if traceback else "")) from None
        return _checked(found, len(inputs), what)

    return checked


def _checked(found: Any, number: int, what: str) -> Input:
    tensors = found if isinstance(found, dict) and found else {"": found}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise ScenarioError(f"{what} returned an object of type {type(tensor).__name__}; {_EXPECTED}")
        if not tensor.ndim or len(tensor) != number:
            raise ScenarioError(f"{what} returned a tensor {list(tensor.shape)} for {number} samples; {_EXPECTED}")
    return found  # type: ignore[no-any-return]
