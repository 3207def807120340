"""Calls a data source; the call can be repeated on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfl.data import data_sources
from rayfl.errors import ScenarioError
from rayfl.registry import call_with_options


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
