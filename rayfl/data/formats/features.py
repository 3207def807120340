"""Finds the input and label columns of a Hugging Face data set by their features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rayfl.data.formats.columns import InputColumns, LabelColumns
from rayfl.errors import DataError


def label_column(features: Mapping[str, Any], taken: Iterable[str | None], where: str) -> str:
    """Finds the only column of classes (`ClassLabel`).

    Args:
        features: The features of all columns.
        taken: Columns with other roles; None entries are ignored.
        where: The data set, for messages.

    Raises:
        DataError: There is no such column, or several; names them.
    """
    from datasets import ClassLabel

    return _only(features, taken, lambda feature: isinstance(feature, ClassLabel), "label", "a ClassLabel", where)


def input_column(features: Mapping[str, Any], taken: Iterable[str | None], where: str) -> str:
    """Finds the only column of images (`Image`), arrays or lists of numbers; see `label_column`."""
    return _only(features, taken, _holds_inputs, "inputs", "an image, or an array or list of numbers", where)


def columns_in(chosen: InputColumns | LabelColumns | None) -> tuple[str, ...]:
    """The columns that an option names."""
    if chosen is None or isinstance(chosen, str):
        return () if chosen is None else (chosen,)
    return tuple(chosen.values() if isinstance(chosen, dict) else chosen)


def _only(
    features: Mapping[str, Any],
    taken: Iterable[str | None],
    fits: Callable[[Any], bool],
    option: str,
    kind: str,
    where: str,
) -> str:
    free = [name for name in features if name not in set(taken)]
    found = [name for name in free if fits(features[name])]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{where}: {', '.join(found)} are each {kind}; name one in data.options.{option}")
    raise DataError(
        f"{where}: no column is {kind}; name one in data.options.{option} (there are {', '.join(free) or 'none'})"
    )


def _holds_inputs(feature: Any) -> bool:
    from datasets import Array2D, Array3D, Array4D, Array5D, Image

    return isinstance(feature, Image | Array2D | Array3D | Array4D | Array5D) or _is_list_of_numbers(feature)


def _is_list_of_numbers(feature: Any) -> bool:
    from datasets import LargeList, List, Value

    if not isinstance(feature, List | LargeList):
        return False
    inner = feature.feature
    numbers = isinstance(inner, Value) and inner.dtype.startswith(("int", "uint", "float", "bool"))
    return numbers or _is_list_of_numbers(inner)
