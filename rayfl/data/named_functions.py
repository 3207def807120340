"""Functions that a scenario names in [data]: its source, and functions of one argument, such as a collation.

The call of a source can be repeated on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayfl.config.component import Choice, with_defaults
from rayfl.config.registry import call_with_options, first_parameter
from rayfl.config.section import Named
from rayfl.data import collations, data_sources, labelings
from rayfl.errors import ScenarioError


class _Sources(Choice):
    """Name and options of a source are keys of `data`; it may also be an object that is not called."""

    def build(self, chosen: Any, where: str = "data", **provided: Any) -> Any:
        source = self.target(chosen.name)
        if callable(source):
            return call_with_options(source, chosen.options, provided, f"{where}.options")
        if chosen.options:
            raise ScenarioError(f"{where}.options: '{chosen.name}' is not a function and takes no options")
        return source

    def resolve(self, chosen: Any, where: str) -> Any:
        source = self.target(chosen.name)
        if not callable(source):
            self.build(chosen, where)
            return chosen
        return chosen.model_copy(
            update={"options": with_defaults(source, chosen.options, self.given, f"{where}.options")}
        )


class _FunctionsOfOne(Choice):
    """Functions of one argument, whatever its name; the others are options."""

    def given_to(self, target: Callable[..., Any], chosen: Named, where: str) -> Sequence[str]:
        return first_parameter(target, where)


_FUNCTION = "is an object of type {}, not a function"

SOURCES = _Sources(data_sources, given=("source", "data_dir", "cache_dir", "seed", "clients"))
LABELINGS = _FunctionsOfOne(labelings, otherwise=_FUNCTION, says_where=False)
COLLATIONS = _FunctionsOfOne(collations, otherwise=_FUNCTION, says_where=False)


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
        return SOURCES.build(self, **self.given)
