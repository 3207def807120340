"""Names to objects: a short registered name, or `package.module:object` for a user's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rayfl.errors import ScenarioError


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'a' or 'b'?` for a misspelt name, or the list of what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return "known: " + ", ".join(known)


def import_object(path: str) -> Any:
    """The object behind `package.module:object`.

    Raises:
        ScenarioError: the module cannot be imported or has no such attribute.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ScenarioError(f"cannot import '{path}': {error} (is its folder on PYTHONPATH?)") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ScenarioError(
            f"module '{module_name}' has no '{attribute}'; {nearest(attribute, vars(module))}"
        ) from None


class Registry:
    """Objects of one kind by name; a value is an import path, so that listing names imports nothing."""

    def __init__(self, kind: str, paths: Mapping[str, str]) -> None:
        self.kind = kind
        self._paths = dict(paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def resolve(self, name: str) -> Any:
        """The object called `name`: a registered name first, then `package.module:object`.

        Raises:
            ScenarioError: nobody is called so; the nearest names are offered.
        """
        if name in self._paths:
            return import_object(self._paths[name])
        if ":" in name:
            return import_object(name)
        raise ScenarioError(
            f"unknown {self.kind} '{name}'; {nearest(name, self._paths)} (your own: 'package.module:object')"
        )


def call_with_options(
    target: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any], where: str
) -> Any:
    """`target(**options)`, together with those of the `given` arguments that its signature names.

    `options` come from the scenario and must all be accepted; `given` is what rayfl knows (the number of
    classes, say) and goes only to a target that asks for it and was not told otherwise.

    Raises:
        ScenarioError: an option that `target` does not take, or a required one that is missing; `where` is
            the key path the message names.
    """
    parameters = inspect.signature(target).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not takes_any:
        for key in options:
            if key not in parameters:
                raise ScenarioError(f"{where}.{key}: not an option of '{where}'; {nearest(key, parameters)}")
    arguments = {key: value for key, value in given.items() if takes_any or key in parameters} | dict(options)
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in arguments
    ]
    if missing:
        raise ScenarioError(f"{where}: needs {', '.join(missing)}")
    return target(**arguments)
