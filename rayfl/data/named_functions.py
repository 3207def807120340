"""Functions that a scenario names in [data]: its source, and functions of one argument, such as a collation.

The call of a source can be repeated on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rayfl.config.registry import Registry, call_with_options, check_callable, check_options, first_parameter
from rayfl.config.section import Named
from rayfl.data import data_sources
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class SourceCall:
    """The object named by `data.name` and its arguments.

    Attributes:
        name: A registered source, or the import path of a function or an object.
        options: `data.options`.
        given: Values that rayfl provides to functions with these parameters.
    """

    name: str
    options: Mapping[str, Any]
    given: Mapping[str, Any]

    def __call__(self) -> Any:
        """Returns the result of the function, or the object itself.

        Raises:
            ScenarioError: The name is unknown, an option is wrong, an object was given options, or the function raised.
        """
        source = data_sources.resolve(self.name)
        if callable(source):
            return call_with_options(source, self.options, self.given, "data.options")
        if self.options:
            raise ScenarioError(f"data.options: '{self.name}' is not a function and takes no options")
        return source


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
    check_callable(target, f"{where}: '{chosen.name}'", f"; {expected}")
    return partial(target, **check_options(target, chosen.options, first_parameter(target, where), where))
