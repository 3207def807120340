"""State in attributes: what networks and tasks keep besides parameters and carried buffers, compared by value."""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import random
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

Attribute = tuple[str, str]
"""Whose attribute it is, and its name: ("model", "encoder.hidden")."""

Values = dict[tuple[Attribute, str], Any]
"""What attributes hold: by the attribute, and by the place inside it ("['key'][3]")."""

MOST = 200_000
"""Places that are looked at, so that an attribute with a large structure, such as a vocabulary, costs no minutes."""

DEEPEST = 100
"""Levels of a nested structure, such as a linked list, that are looked at."""

TOLERANCE = 1e-5
"""Relative difference of floating-point values that may be rounding."""

_LEFT_OUT = {"_parameters", "_buffers", "_non_persistent_buffers_set", "_modules", "training"}
_ATOMS = (bool, int, str, bytes, type(None), enum.Enum, numbers.Number, np.generic)
_LIBRARIES = {"site-packages", "dist-packages"}


def values_of(buffers: Collection[str], /, **owners: Any) -> Values:
    """Copies what the attributes of networks, of all their submodules, and of other objects hold.

    Parameters, the mode and the given buffers are left out. Containers, dataclasses and objects of the user's own
    classes are entered; other objects, such as functions and loggers, are not. Mutable attributes of the user's classes
    count, too.

    Args:
        buffers: Names of buffers that rayfl carries or resets. All others, which were without a tensor when the network
            was built, are attributes like any.
        owners: Networks and other objects, such as a task, by what to call them.
    """
    walk = _Walk()
    for owner in owners.values():
        if isinstance(owner, nn.Module):
            carried = (one for name, one in owner.named_buffers(remove_duplicate=False) if name in buffers)
            walk.known |= {id(one) for one in (*owner.parameters(), *carried, *owner.modules())}
    for label, owner in owners.items():
        named = owner.named_modules() if isinstance(owner, nn.Module) else [("", owner)]
        for path, one in named:
            prefix = f"{path}." if path else ""
            for name, value in _attributes_of(one):
                walk.enter((label, prefix + name), "", value)
            for name, value in one._buffers.items() if isinstance(one, nn.Module) else ():
                if prefix + name not in buffers:
                    walk.enter((label, prefix + name), "", value)
    return walk.found


def changed(before: Values, after: Values) -> list[Attribute]:
    """The attributes that differ, in order."""
    places = [place for place in {**before, **after} if not _same(before.get(place, _Walk), after.get(place, _Walk))]
    return list(dict.fromkeys(attribute for attribute, _ in places))


def is_generator(values: Values, attribute: Attribute) -> bool:
    """Whether an attribute is, or contains, a generator of random numbers."""
    return any(of == attribute and value[0] == "generator" for (of, _), value in values.items())


class _Walk:
    """Collects values; shared and cyclic structures are entered once."""

    def __init__(self) -> None:
        self.found: Values = {}
        self.known: set[int] = set()
        self._alive: list[Any] = []  # so that no id is used twice

    def enter(self, name: Attribute, place: str, value: Any, depth: int = 0) -> None:
        """Adds an attribute's value, or what is inside it."""
        if len(self.found) >= MOST or depth > DEEPEST or (id(value) in self.known and not isinstance(value, _ATOMS)):
            return
        leaf = _leaf(value)
        if leaf is not None:
            self.found[name, place] = leaf
            return
        inside = _inside(value)
        if inside is None:
            return
        self.known.add(id(value))
        self._alive.append(value)
        self.found[name, place] = type(value).__name__, len(inside)
        for index, one in inside:
            self.enter(name, f"{place}{index}", one, depth + 1)


def _leaf(value: Any) -> Any:
    """A copy of a value that has no structure, with its kind; None if it has one."""
    if isinstance(value, torch.Tensor):
        return "tensor", None if value.is_meta else value.detach().clone()
    if isinstance(value, np.ndarray):
        return ("array", value.copy()) if value.dtype != object else None
    if isinstance(value, torch.Generator):
        return "generator", value.get_state().clone()
    if isinstance(value, np.random.Generator):
        return "generator", repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState | random.Random):
        return "generator", repr(value.get_state() if isinstance(value, np.random.RandomState) else value.getstate())
    if isinstance(value, _ATOMS):
        return type(value).__name__, value
    if isinstance(value, list | tuple) and all(type(one) in (int, bool, str) for one in value):
        return type(value).__name__, tuple(value)
    return None


def _inside(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container or an object that is entered, by place; None for all other objects."""
    if isinstance(value, Mapping):
        return [(_key(number, key), one) for number, (key, one) in enumerate(value.items())]
    if isinstance(value, list | tuple | deque):
        return [(f"[{number}]", one) for number, one in enumerate(value)]
    if isinstance(value, AbstractSet):
        return [("", tuple(sorted(map(repr, value))))] if all(isinstance(one, _ATOMS) for one in value) else []
    if isinstance(value, np.ndarray):
        return [(f"[{number}]", one) for number, one in enumerate(value.flat)]
    if isinstance(value, nn.Module):  # not registered as a submodule: its parameters are attributes like others
        return [(f".{name}", one) for name, one in vars(value).items()]
    if isinstance(value, SimpleNamespace) or dataclasses.is_dataclass(value) or _is_users(type(value)):
        return [(f".{name}", one) for name, one in _attributes_of(value)]
    return None


def _key(number: int, key: Any) -> str:
    return f"[{key!r}]" if isinstance(key, _ATOMS) else f"[{number}]"


def _attributes_of(owner: Any) -> Iterator[tuple[str, Any]]:
    """Attributes of an object, those in slots, private ones of pydantic models, and mutable ones of its class."""
    own = {**getattr(owner, "__dict__", {}), **(getattr(owner, "__pydantic_private__", None) or {})}
    yield from ((name, value) for name, value in own.items() if name not in _LEFT_OUT)
    for kind in type(owner).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if not name.startswith("__") and hasattr(owner, name):
                yield name, getattr(owner, name)
        for name, value in list(vars(kind).items()) if _is_users(kind) else ():
            data = _leaf(value) is not None or isinstance(value, list | dict | deque)
            if data and name not in own and not name.startswith("__"):
                yield name, value


def _is_users(kind: type) -> bool:
    """Whether a class is defined in the user's own code, not in Python, in rayfl or in an installed package."""
    package = kind.__module__.partition(".")[0]
    if package in ("builtins", "rayfl") or (package in sys.stdlib_module_names and package != "__main__"):
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or not _LIBRARIES.intersection(Path(file).parts)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if one is _Walk or other is _Walk or one[0] != other[0] or type(one[1]) is not type(other[1]):
        return False
    first, second = one[1], other[1]
    if isinstance(first, torch.Tensor):
        return _same_tensors(first, second)
    if isinstance(first, np.ndarray):
        return first.shape == second.shape and first.dtype == second.dtype and _same_arrays(first, second)
    if isinstance(first, float | np.floating) and math.isclose(first, second, rel_tol=TOLERANCE):
        return True
    return bool(first == second or (first != first and second != second))  # an undefined number or date is the same


def _same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype or one.layout != other.layout:
        return False
    if one.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    if not one.is_floating_point() and not one.is_complex():
        return torch.equal(one, other)
    wide = torch.complex128 if one.is_complex() else torch.float64
    return _same_arrays(one.to(wide).numpy(force=True), other.to(wide).numpy(force=True))


def _same_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "mM"))
    finite = np.abs(one[np.isfinite(one)])
    scale = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * scale / 10, equal_nan=True))
