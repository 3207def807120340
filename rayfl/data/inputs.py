"""Inputs of samples: arrays, windows of a text, sequences of different lengths, and several of these by name.

Also images that are rendered on access and differ from one training batch to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np

from rayfl.errors import DataError


class Rendered(ABC):
    """Inputs [n, height, width, channels] uint8 stored only as a recipe.

    Training renders new images for every batch, from the random stream of the view. Code that reads rows as from an
    array, such as evaluation, gets one fixed image per row, the same in every batch and every worker process.

    Attributes:
        shares_views: Whether the views of a training batch are augmentations of one rendering; if not, each view is
            rendered separately.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Rendered
        >>> class Noise(Rendered):
        ...     def __init__(self, rows):
        ...         self.rows = rows
        ...     shape = property(lambda self: (len(self.rows), 8, 8, 1))
        ...     recipe = property(lambda self: {"kind": "noise", "rows": self.rows.tolist()})
        ...     def render(self, rows, rng):
        ...         return rng.integers(0, 256, (len(rows), 8, 8, 1), dtype=np.uint8)
        ...     def fixed(self, rows):
        ...         return np.concatenate([self.render([row], np.random.default_rng(row)) for row in self.rows[rows]])
        ...     def take(self, rows):
        ...         return Noise(self.rows[rows])
        >>> noise = Noise(np.arange(100))
        >>> bool((noise[:3] == noise.take(np.arange(3))[:]).all())
        True
    """

    dtype = np.dtype(np.uint8)
    ndim = 4
    shares_views: bool = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """(n, height, width, channels)."""

    @property
    @abstractmethod
    def recipe(self) -> Mapping[str, Any]:
        """Everything that the images depend on, as numbers and strings; the digest of the data is computed from it."""

    @abstractmethod
    def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Renders some rows.

        Args:
            rows: [k] integers.
            rng: Source of all random numbers.

        Returns:
            uint8 [k, height, width, channels].
        """

    def render_views(self, rows: np.ndarray, rngs: Sequence[np.random.Generator]) -> list[np.ndarray]:
        """Renders some rows for the views of a batch, separately unless a subclass shares work between them.

        Args:
            rows: [k] integers.
            rngs: The random stream of each view.

        Returns:
            The result of `render` for every view.
        """
        return [self.render(rows, rng) for rng in rngs]

    @abstractmethod
    def fixed(self, rows: np.ndarray) -> np.ndarray:
        """The fixed images of some rows, uint8 [k, height, width, channels]."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Self:
        """Some of the rows; their fixed images do not change."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The fixed images of some rows."""
        return self.fixed(np.arange(len(self))[rows])


class AsArray:
    """Rows of one shape and dtype that stand for an array, and are produced when they are accessed."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...

        @property
        def dtype(self) -> np.dtype: ...

        def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray: ...

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """Copies of all rows, for `numpy.asarray`."""
        return self[:].astype(dtype or self.dtype, copy=False)


@dataclass(frozen=True)
class TextWindows(AsArray):
    """Inputs [n, length] uint8 that are windows of one text, with the interface of an array.

    Overlapping windows share the memory of the text; a window costs only its start.

    Attributes:
        text: [m] uint8, symbols.
        starts: [n] int32 or int64, start of each window in the text.
        length: Symbols per window.

    Raises:
        DataError: A window extends beyond the text.
    """

    text: np.ndarray
    starts: np.ndarray
    length: int

    dtype = np.dtype(np.uint8)

    def __post_init__(self) -> None:
        last = len(self.text) - self.length
        if len(self.starts) and not 0 <= self.starts.min() <= self.starts.max() <= last:
            raise DataError(
                f"windows of {self.length} symbols start at {self.starts.min()} to {self.starts.max()}; in a text of "
                f"{len(self.text)} symbols they must start at 0 to {last}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts), self.length

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some windows, [rows, length] uint8."""
        every_window = np.lib.stride_tricks.sliding_window_view(self.text, self.length)
        windows: np.ndarray = every_window[self.starts[rows]]
        return windows

    def take(self, rows: np.ndarray) -> TextWindows:
        """Some windows of the same text, which is shared."""
        return replace(self, starts=self.starts[rows])


class Pieces(ABC):
    """Inputs whose first dimension differs; `data.collate` makes batches of them."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The dtype of every piece."""

    @property
    @abstractmethod
    def inner_shape(self) -> tuple[int, ...]:
        """The shape of every piece without its first dimension."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: np.ndarray | slice) -> list[np.ndarray]:
        """Copies of some pieces."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Pieces:
        """Some of the pieces."""


@dataclass(frozen=True)
class Ragged(Pieces):
    """Inputs whose first dimension differs, stored as pieces of one array.

    Attributes:
        values: [m, ...], all pieces.
        starts: [n] integers, start of each piece in `values`.
        lengths: [n] integers, length of each piece.

    Raises:
        DataError: A piece extends beyond `values`.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Ragged
        >>> texts = Ragged.of([np.array([5, 2]), np.array([7, 1, 3])])
        >>> texts.lengths
        array([2, 3])
        >>> texts[np.array([1])]
        [array([7, 1, 3])]
    """

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.lengths):
            raise DataError(f"pieces of different lengths: {len(self.starts)} starts, {len(self.lengths)} lengths")
        ends = self.starts + self.lengths
        if len(ends) and not (self.starts.min() >= 0 <= self.lengths.min() and ends.max() <= len(self.values)):
            raise DataError(f"pieces of different lengths: some do not lie inside the {len(self.values)} values")

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.values.shape[1:]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: np.ndarray | slice) -> list[np.ndarray]:
        """Copies of some pieces."""
        pairs = zip(self.starts[rows], self.lengths[rows], strict=True)
        return [self.values[start : start + length].copy() for start, length in pairs]

    def take(self, rows: np.ndarray) -> Ragged:
        """Some of the pieces, sharing the same values."""
        return replace(self, starts=self.starts[rows], lengths=self.lengths[rows])

    @staticmethod
    def of(pieces: Sequence[np.ndarray]) -> Ragged:
        """Builds it from arrays that agree in dtype and in all dimensions but the first."""
        lengths = np.array([len(piece) for piece in pieces], np.int64)
        return Ragged(np.concatenate(pieces), np.cumsum(lengths) - lengths, lengths)


class Rows(Protocol):
    """A substitute for an array: rows of one shape and dtype, produced when they are accessed."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def ndim(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: np.ndarray | slice, /) -> np.ndarray: ...

    def take(self, rows: np.ndarray, /) -> Rows: ...


Array = np.ndarray | Rows
"""Rows of one shape and dtype."""


TRIED = 16
"""Number of rows, evenly spaced, by which processes compare inputs that each reads from their source itself."""


def spaced(number: int) -> list[int]:
    """At most `TRIED` of some rows, evenly spaced, the first and the last among them."""
    rows: list[int] = np.unique(np.linspace(0, number - 1, min(number, TRIED)).astype(np.int64)).tolist()
    return rows


@runtime_checkable
class Reopenable(Protocol):
    """Inputs that are not sent to worker processes: each reads them from their source itself."""

    def reopen(self) -> None:
        """Opens the source in this process.

        Raises:
            DataError: It has other data here than where the run started.
        """


@runtime_checkable
class InFragments(Protocol):
    """Inputs that lie in several files, of which a node that has read one reads it faster."""

    def fragments_of(self, rows: np.ndarray) -> np.ndarray:
        """[n] integers: the file in which each of some rows lies."""


@dataclass(frozen=True)
class Fields:
    """Several inputs by name, for a network whose `forward` takes them as keyword arguments.

    Attributes:
        arrays: Rows by the name of the argument, the same number for each.

    Raises:
        DataError: A name is not a valid argument, there is no array, arrays differ in length, or images are rendered.

    Example:
        >>> import numpy as np
        >>> from rayfl.data import Fields
        >>> tokens, mask = np.zeros((4, 16), np.int64), np.ones((4, 16), np.int64)
        >>> inputs = Fields({"input_ids": tokens, "attention_mask": mask})
        >>> len(inputs.take(np.array([0, 2])))
        2
    """

    arrays: Mapping[str, Array | Pieces]

    def __post_init__(self) -> None:
        if not self.arrays:
            raise DataError("inputs by name: the mapping is empty; give at least one")
        for name, array in self.arrays.items():
            if not str(name).isidentifier():
                raise DataError(f"inputs by name: {name!r} cannot be the name of an argument of the network's forward")
            if isinstance(array, Rendered):
                raise DataError(f"inputs by name: {name!r} is rendered; rendered images must be a sample's only input")
        if len({len(array) for array in self.arrays.values()}) > 1:
            lengths = ", ".join(f"{name} {len(array)}" for name, array in self.arrays.items())
            raise DataError(f"inputs by name differ in their number of rows: {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def take(self, rows: np.ndarray) -> Fields:
        """Some rows of every input."""
        parts = self.arrays.items()
        return Fields({name: part[rows] if isinstance(part, np.ndarray) else part.take(rows) for name, part in parts})


Inputs = Array | Pieces | Fields


def taken(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Some rows of any inputs, in the order of `rows`."""
    return inputs[rows] if isinstance(inputs, np.ndarray) else inputs.take(rows)


def are_images(inputs: Inputs) -> TypeGuard[np.ndarray]:
    """Whether the inputs are [n, height, width, channels] uint8."""
    return not isinstance(inputs, Pieces | Fields) and inputs.dtype == np.uint8 and inputs.ndim == 4


def named_parts(inputs: Inputs) -> dict[str, Array | Pieces]:
    """The arrays of the inputs by name; a single array has the name ""."""
    return dict(inputs.arrays) if isinstance(inputs, Fields) else {"": inputs}


def reopen(inputs: Inputs) -> None:
    """Opens in this process what inputs are read from; see `Reopenable`."""
    for part in named_parts(inputs).values():
        reopened: object = part
        if isinstance(reopened, Reopenable):
            reopened.reopen()


def are_ragged(inputs: Inputs) -> bool:
    """Whether rows differ in length, so that batches need `data.collate`."""
    return any(isinstance(part, Pieces) for part in named_parts(inputs).values())


def kind_of(inputs: Inputs) -> str:
    """Shape of a row and dtype, in words: "[28, 28, 1] uint8"."""
    described = []
    for name, part in named_parts(inputs).items():
        if isinstance(part, Pieces):
            shape = f"[{', '.join(['any', *map(str, part.inner_shape)])}]"
        else:
            shape = str(list(part.shape[1:]))
        described.append(f"{name} {shape} {part.dtype}".strip())
    return ", ".join(described)
