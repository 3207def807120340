"""A function of one argument that a key of [data] chooses by name, such as a collation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.registry import Registry, check_options, first_parameter


def chosen_function(registry: Registry, chosen: Named, where: str, expected: str) -> Callable[[Any], Any]:
    """The function with its options, which is yet to be called with its argument.

    Args:
        registry: Of registered names.
        chosen: Its name and options.
        where: The key that chooses it, for errors.
        expected: What such a function is, for errors.

    Raises:
        ScenarioError: An unknown name or option, or something that cannot be called.
    """
    target = registry.resolve(chosen.name)
    if not callable(target):
        kind = type(target).__name__
        raise ScenarioError(f"{where}: '{chosen.name}' is an object of type {kind}; {expected}")
    return partial(target, **check_options(target, chosen.options, first_parameter(target, where), where))
