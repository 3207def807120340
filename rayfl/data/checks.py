"""Checks that the samples of a data set are consistent and usable by a network.

Also hints in error messages about inputs that look like images in another layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.inputs import Array, Fields, Inputs, Pieces, Ragged, kind_of, named_parts
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
        _check_labels(samples.y, data.num_classes, f"{name}: {part}", _owners(data, part))
    for part, samples in data.parts.items():
        _check_inputs(samples.x, f"{name}: {part}", _owners(data, part))
    for part, samples in data.parts.items():
        ours, kinds = (
            {key: kind_of(one) for key, one in named_parts(split.x).items()} for split in (data.train, samples)
        )
        if ours != kinds:
            raise DataError(f"{name}: train inputs are {kind_of(data.train.x)}, {part} inputs {kind_of(samples.x)}")
        labels = [f"{list(split.y.shape[1:])} {split.y.dtype.kind == 'f'}" for split in (data.train, samples)]
        if labels[0] != labels[1]:
            shapes = [f"{split.y.dtype}{list(split.y.shape)}" for split in (data.train, samples)]
            raise DataError(f"{name}: train labels are {shapes[0]}, {part} labels {shapes[1]}")
    x = data.train.x
    if not isinstance(x, Pieces | Fields) and x.dtype == np.uint8 and x.ndim == 3:
        raise DataError(f"{name}: images must be [n, height, width, channels]; {kind_of(x)} has no channels")


def are_class_labels(labels: np.ndarray, num_classes: int | None) -> bool:
    """Whether every label is a single class."""
    return num_classes is not None and labels.ndim == 1 and labels.dtype.kind in "ui"


def number_texts(labels: Any) -> str:
    """The remedy for labels that are strings, starting with "; "; "" for others."""
    if not labels.size or not isinstance(labels.flat[0], str | bytes):
        return ""
    return (
        "; number the classes: classes, train_y = numpy.unique(train_y, return_inverse=True), then "
        "test_y = numpy.searchsorted(classes, test_y)"
    )


def how_to_number(labels: np.ndarray) -> str:
    """Code that makes integer class labels [n] of labels that hold them in another form, starting with "; "."""
    whole = labels.dtype.kind != "f" or bool((labels == np.round(labels)).all())
    cast = ".astype('int64')" if labels.dtype.kind == "f" else ""
    if labels.ndim == 2 and labels.shape[1] == 1 and whole:
        return f"; give y.ravel(){cast}"
    if labels.ndim == 2 and bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all()):
        return "; they look one-hot: give y.argmax(1)"
    return f"; give y{cast}" if cast and whole else ""


def unmasked(values: Any, what: str) -> Any:
    """The values of a NumPy masked array, whose mask `numpy.asarray` would drop; anything else unchanged.

    Raises:
        DataError: Some are masked; names the first.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if np.ma.is_masked(values):
        raise DataError(f"{what} have masked values: {_first(np.ma.getmaskarray(values))}; {_REPLACE}, as x.filled(0)")
    return values.data


def labels_from(values: Any, what: str = "the labels") -> np.ndarray:
    """Labels as rayfl stores them: integers as int64, floating point numbers as float32, booleans as 0 and 1.

    Raises:
        DataError: Values are masked or too large; `what` names the labels.
    """
    y = array_from(values, what)
    check_range(y, what)
    if y.dtype.kind == "f":
        return y.astype(np.float32)
    return y.astype(np.int64) if y.dtype.kind in "uib" else y


def array_from(values: Any, what: str) -> np.ndarray:
    """Anything that numpy can read as an array.

    Raises:
        DataError: Values are masked or sparse, or lists differ in length; `what` names them.
    """
    if remedy := how_to_make_dense(values):
        raise DataError(f"{what} are of type {type(values).__name__}{remedy}")
    try:
        # asanyarray, since readers of netCDF and HDF return masked arrays from `__array__`
        return np.asarray(unmasked(np.asanyarray(values), what))
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise DataError(f"{what} are lists that differ in length or depth below the first level") from None


def check_values(part: Array | Pieces, what: str, owner: Callable[[int], str] = lambda row: "") -> None:
    """Checks that values in memory are finite, also as the float32 or int64 that networks receive.

    Args:
        part: Inputs or labels; those that are read later are not checked.
        what: They, for messages.
        owner: Says whose a row is, starting with ", ".

    Raises:
        DataError: Names the first value that is not.
    """
    values = part.values if isinstance(part, Ragged) else part
    if not isinstance(values, np.ndarray) or not values.size:
        return
    if values.dtype.kind == "f" and not np.isfinite([np.min(values), np.max(values)]).all():
        rows = part[:] if isinstance(part, Ragged) else values
        row = next(row for row, one in enumerate(rows) if not np.isfinite(one).all())
        place = _first(~np.isfinite(rows[row])[None], row)
        raise DataError(f"{what} hold values that are not finite: {place}{owner(row)}; {_REPLACE}")
    check_range(values, what)


def not_finite_later(x: Inputs, rows: np.ndarray) -> str:
    """The first of some rows that were not in memory before the run and hold NaN or infinity as float32; "" if none."""
    for name, part in named_parts(x).items():
        if isinstance(part, np.ndarray | IndexedRows | Ragged) or part.dtype.kind != "f":
            continue
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[start : start + _ROWS_AT_ONCE]
            for row, values in zip(chunk.tolist(), part[chunk], strict=True):
                with np.errstate(over="ignore"):
                    wrong = ~np.isfinite(np.asarray(values, np.float32))
                if wrong.any():
                    number = int(getattr(part, "rows", np.arange(len(part)))[row])
                    which = f"input '{name}' of item {number}" if name else f"item {number}"
                    return f"{which} ({int(wrong.sum())} of its {wrong.size} values)"
    return ""


_ROWS_AT_ONCE = 256

_REPLACE = "leave such samples out, or fill them"


def how_to_make_dense(array: Any) -> str:
    """Code that makes an array of a sparse matrix or tensor, starting with "; "; "" for others."""
    if hasattr(array, "toarray"):
        return "; it is sparse: give its .toarray()"
    return "; it is sparse: give its .to_dense()" if getattr(array, "is_sparse", False) else ""


def check_range(values: np.ndarray, what: str) -> None:
    """Checks that no value turns infinite as float32, or wraps as int64.

    Raises:
        DataError: One does.
    """
    if not values.size or values.dtype.kind not in "uf" or values.dtype in (np.float16, np.float32):
        return
    largest, name = (float(np.finfo(np.float32).max), "float32") if values.dtype.kind == "f" else (2**63 - 1, "int64")
    most = max((value for value in (values.min(), values.max()) if np.isfinite(value)), key=abs, default=0)
    if abs(most) > largest:
        raise DataError(f"{what} hold {most:.6g}, too large for {name}, the type that networks receive; scale them")


def _first(wrong: np.ndarray, first_row: int = 0) -> str:
    """Where the first of some true values is; rows are counted from `first_row`."""
    row, *place = (int(index) for index in np.argwhere(np.atleast_1d(wrong))[0])
    column = f", column {place[0]}" if len(place) == 1 else f", at {place}" if place else ""
    return f"the first in row {first_row + row}{column}"


def _owners(data: Dataset, part: str) -> Callable[[int], str]:
    """Says which natural client a row belongs to, if any."""
    shards = None if data.natural is None else {"train": data.natural.train, "test": data.natural.test}.get(part)

    def owner(row: int) -> str:
        if shards is None or data.natural is None or not (shards.rows == row).any():
            return ""
        place = int(np.argmax(shards.rows == row))
        client = int(np.searchsorted(shards.offsets, place, side="right")) - 1
        return f", of client '{data.natural.names[client]}'"

    return owner


def _check_labels(y: Array, num_classes: int | None, what: str, owner: Callable[[int], str]) -> None:
    described = f"{what} labels are {y.dtype}{list(y.shape)}"
    if y.dtype.kind not in "uif" or not y.dtype.isnative:
        raise DataError(
            f"{described}; allowed are integers and floating point numbers in this machine's byte order"
            + number_texts(y)
        )
    unmasked(y, f"{what} labels")
    check_values(y, f"{what} labels", owner)
    if num_classes is None or y.ndim > 1 or not isinstance(y, np.ndarray):
        return
    if y.dtype.kind == "f":
        raise DataError(
            f"{described}, but {num_classes} classes need a vector of integers; use num_classes = None for other labels"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise DataError(f"{what} labels run from {low} to {high}, allowed are 0 to {num_classes - 1}")


def _check_inputs(x: Inputs, what: str, owner: Callable[[int], str]) -> None:
    kinds = "uifb" if isinstance(x, Fields) else "uif"
    for name, part in named_parts(x).items():
        inputs = f"{what} inputs" + (f" '{name}'" if name else "")
        if part.dtype.kind == "f" and part.dtype.itemsize > 8:
            raise DataError(f"{inputs} are {part.dtype}, which is too wide; give float64 or float32")
        if part.dtype.kind not in kinds or not part.dtype.isnative:
            raise DataError(
                f"{inputs} are {part.dtype}; allowed are integers and floating point numbers in this machine's byte "
                "order" + ("; give x.astype('float32')" if part.dtype == object else "")
            )
        unmasked(part.values if isinstance(part, Ragged) else part, inputs)
        check_values(part, inputs, owner)


CHANNELS = (1, 3, 4)
"""Numbers of channels that suggest an image."""


def how_to_make_images(inputs: Inputs) -> str:
    """Says how to convert inputs that look like images to [n, height, width, channels] uint8.

    Returns:
        A remedy that starts with "; ", or "" if inputs are images already or do not look like images.
    """
    if isinstance(inputs, Pieces | Fields) or inputs.ndim != 4:
        return ""
    _, second, third, fourth = inputs.shape
    first = second in CHANNELS and second != third  # not a small board of many channels
    last = fourth in CHANNELS
    if inputs.dtype == np.uint8 and not last:  # an image in any case; square ones may have any number of channels
        first |= second != third == fourth
    if first == last or (last and inputs.dtype == np.uint8):
        return ""
    layout = f"images [n, {'channels, height, width' if first else 'height, width, channels'}]"
    if not isinstance(inputs, np.ndarray | IndexedRows):
        how = "give x.transpose(1, 2, 0)" if inputs.dtype == np.uint8 else "give uint8"
        return f"; these look like {layout}: {how} (from a Dataset, a PIL image, without ToTensor)"
    chunks = (inputs[start : start + _ROWS_AT_ONCE] for start in range(0, len(inputs), _ROWS_AT_ONCE))
    extremes = np.array([(chunk.min(), chunk.max()) for chunk in chunks], np.float64)
    low, high = float(extremes[:, 0].min()), float(extremes[:, 1].max())
    hint = " after undoing their normalisation" if inputs.dtype.kind == "f" and low < 0 else ""
    pixels = _pixels(inputs.dtype, low, high)
    return f"; these look like {layout}: write x = {pixels}{'.transpose(0, 2, 3, 1)' if first else ''}{hint}"


def _pixels(dtype: np.dtype, low: float, high: float) -> str:
    """Code that scales inputs called x to uint8, which wraps whatever lies outside 0..255."""
    if dtype == np.uint8:
        return "x"
    if dtype.kind == "f" and (low < 0 or high <= 1):
        return "(255 * x).round().astype('uint8')"
    if low >= 0 and high <= 255:
        return f"x{'.round()' if dtype.kind == 'f' else ''}.astype('uint8')"
    if dtype.kind != "f" and low >= 0 and 4096 <= high <= 65535:  # of 12 bits it would leave 16 levels
        return "(x // 257).astype('uint8')"
    return "(255.0 * (x - LOW) / (HIGH - LOW)).round().astype('uint8') for pixels from LOW to HIGH"
