"""Reads an item of a Dataset: its input or named inputs as arrays, and its label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image

from rayfl.data.checking import how_to_make_dense, unmasked
from rayfl.data.formats.image_decoding import in_eight_bits
from rayfl.data.image_layout import CHANNELS
from rayfl.errors import DataError, RayflError
from rayfl.user_code import report_as_theirs


class MapStyle(Protocol):
    """A Dataset whose items are read by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def read_item(dataset: MapStyle, row: int, where: str) -> tuple[dict[str, np.ndarray], Any]:
    """Reads one item.

    PIL images and uint8 tensors [channels, height, width] become [height, width, channels] uint8. All other tensors and
    arrays keep their layout.

    Args:
        dataset: Map-style; its items are pairs (x, y), where x may be a dictionary.
        row: Number of the item.
        where: The set of samples, for messages.

    Returns:
        The inputs by name (a single one has the name ""), and the label.

    Raises:
        DataError: The item is not such a pair, or the Dataset raised an exception.
    """
    try:
        item = dataset[row]
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise DataError(report_as_theirs(error, f"{where}: item {row}")) from None
    if not (isinstance(item, tuple) and len(item) == 2):
        found = f"a tuple of {len(item)}" if isinstance(item, tuple) else f"of type {type(item).__name__}"
        raise DataError(
            f"{where}: item {row} is {found}; __getitem__ must return a pair (x, y), where x is a dictionary if "
            "inputs have names"
        )
    x, y = item
    named = x if isinstance(x, Mapping) else {"": x}
    return (
        {str(name): _array(value, name, row, where) for name, value in named.items()},
        unmasked(_label(y), f"{where}: item {row}: its labels"),
    )


def _array(value: Any, name: str, row: int, where: str) -> np.ndarray:
    match value:
        case torch.Tensor() if value.dtype == torch.uint8 and value.ndim == 3 and not _has_channels_last(value.shape):
            return np.ascontiguousarray(value.detach().cpu().permute(1, 2, 0).numpy())
        case torch.Tensor() if value.dtype == torch.bfloat16:
            return value.detach().cpu().float().numpy()
        case torch.Tensor():
            return value.detach().cpu().numpy()
        case Image.Image():
            pixels = np.asarray(in_eight_bits(value, "L" if value.mode == "L" else "RGB", f"{where}: item {row}"))
            return pixels[..., None] if pixels.ndim == 2 else pixels
    try:
        array = np.asanyarray(value)
    except Exception:  # an arbitrary object may raise anything
        array = np.empty(0, object)
    if array.dtype.kind not in "uifb":
        which = f"input '{name}'" if name else "the input"
        raise DataError(
            f"{where}: {which} of item {row} is of type {type(value).__name__}; give a tensor, an array of numbers, a "
            f"PIL image, or a dictionary of these{how_to_make_dense(value)}"
        )
    return np.asarray(unmasked(array, f"{where}: item {row}: its inputs"))


def _has_channels_last(shape: torch.Size) -> bool:
    return shape[-1] in CHANNELS and shape[0] not in CHANNELS


def _label(y: Any) -> Any:
    if isinstance(y, Image.Image):  # a map of classes
        return np.asarray(y)
    return y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
