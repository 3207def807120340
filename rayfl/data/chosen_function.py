"""Functions of one argument that a key of [data] selects by name, such as a collation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.registry import Registry, check_options, first_parameter


def chosen_function(registry: Registry, chosen: Named, where: str, expected: str) -> Callable[[Any], Any]:
    """Binds the options of a function; the result takes the remaining argument.

    Args:
        registry: The registered functions.
        chosen: Name and options of the function.
        where: The key that selects it, for errors.
        expected: How such a function is called, for errors.

    Raises:
        ScenarioError: The name or an option is unknown, or the object is not callable.
    """
    target = registry.resolve(chosen.name)
    if not callable(target):
        kind = type(target).__name__
        raise ScenarioError(f"{where}: '{chosen.name}' is an object of type {kind}; {expected}")
    return partial(target, **check_options(target, chosen.options, first_parameter(target, where), where))
