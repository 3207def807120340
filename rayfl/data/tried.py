"""Samples by which processes that each read a set from its source compare what they read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_TOLERANCE = 1e-4
_PROJECTIONS = 4
_MOST_VALUES = 4096


@dataclass(frozen=True, eq=False)
class Tried:
    """Some items and labels of a set, and all labels that an attribute holds.

    Floating point numbers are compared up to rounding, since a transform such as `(x - x.mean()) / x.std()` has other
    last bits on another kind of CPU. Each array of them is projected onto a few random directions, which another array,
    or the same values in another order, does not match: a difference of norm d moves every projection by about d.

    Attributes:
        exact: SHA-256 of everything but floating point numbers, in hexadecimal.
        projections: [arrays, projections] float64.
        allowed: [arrays, 1] float64, how far projections may lie apart.
    """

    exact: str
    projections: np.ndarray
    allowed: np.ndarray

    def matches(self, here: Tried) -> bool:
        """Whether they are the same items and labels, up to rounding."""
        if self.exact != here.exact:
            return False
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite match nothing
            return bool((np.abs(self.projections - here.projections) <= self.allowed).all())

    @staticmethod
    def of(items: Sequence[Mapping[str, np.ndarray]], labels: Sequence[Any], held: np.ndarray | None = None) -> Tried:
        """The items and labels that were tried of a set, and all labels where the set holds them."""
        arrays = [(name, value) for item in items for name, value in sorted(item.items())]
        arrays += [("", np.asarray(label)) for label in (*labels, *(() if held is None else (held,)))]
        digest, projections, allowed = hashlib.sha256(), [np.zeros((0, _PROJECTIONS))], [np.zeros((0, 1))]
        for name, value in arrays:
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            if value.dtype.kind == "f":
                values = _some(value)
                projections.append(values @ _directions(len(values)))
                tolerance = max(_TOLERANCE, 4 * float(np.finfo(value.dtype).eps))
                allowed.append(np.array([[tolerance * np.linalg.norm(values)]]))
            else:
                digest.update(repr(value).encode() if value.dtype == object else value.tobytes())
        return Tried(digest.hexdigest(), np.vstack(projections), np.vstack(allowed))


def _some(array: np.ndarray) -> np.ndarray:
    """At most `_MOST_VALUES` of the values, evenly spaced."""
    flat = array.reshape(-1)
    places = np.linspace(0, max(0, flat.size - 1), min(flat.size, _MOST_VALUES)).astype(np.int64)
    return flat[places].astype(np.float64)


def _directions(size: int) -> np.ndarray:
    """The same in every process."""
    return np.random.default_rng(0).standard_normal((size, _PROJECTIONS))
