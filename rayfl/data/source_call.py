"""The call of a source of data: all that it takes to repeat it on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfl.data import data_sources
from rayfl.errors import ScenarioError
from rayfl.registry import call_with_options


@dataclass(frozen=True)
class SourceCall:
    """What `data.name` names, and what it is called with.

    Attributes:
        name: A registered source, or the import path of a function or an object.
        options: `data.options`.
        given: What rayfl knows, for functions that ask for it.
    """

    name: str
    options: Mapping[str, Any]
    given: Mapping[str, Any]

    def __call__(self) -> Any:
        """What the function returns, or the object itself.

        Raises:
            ScenarioError: An unknown name, a wrong option, options for an object, or the function raised something.
        """
        source = data_sources.resolve(self.name)
        if callable(source):
            return call_with_options(source, self.options, self.given, "data.options")
        if self.options:
            raise ScenarioError(f"data.options: '{self.name}' is not a function, and takes none")
        return source
