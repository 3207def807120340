"""Names to objects: a short registered name, or `package.module:object` for a user's own; type hints check options."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json

from rayfl.errors import ScenarioError
from rayfl.wording import in_words


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
        ScenarioError: `path` is not of that form, or the module cannot be imported or has no such attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ScenarioError(f"'{path}' is no import path; write 'package.module:object'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ScenarioError(f"cannot import '{path}': {error} (is its folder on PYTHONPATH?)") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ScenarioError(f"module '{module_name}' has no '{attribute}'; {nearest(attribute, public)}") from None


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

    `options` come from the scenario, hence are plain values, and must all be accepted; each is validated, and
    converted, by pydantic against the annotation of its parameter: `beta: PositiveFloat`,
    `mode: Literal["zeros", "reflect"]`. `given` is what rayfl knows (the number of classes, say) and goes unchecked,
    only to a target that asks for it and was not told otherwise.

    Raises:
        ScenarioError: an option that `target` does not take or that does not fit its annotation, or a required
            one that is missing; `where` is the key path the message names.
    """
    parameters = _signature(target).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    any_other = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
    validated: dict[str, Any] = {}
    wrong: list[str] = []
    for key, value in options.items():
        parameter = named.get(key, any_other)
        if parameter is None:
            raise ScenarioError(f"{where}.{key}: not an option of '{where}'; {nearest(key, named)}")
        try:
            validated[key] = _validated(value, parameter.annotation)
        except ValidationError as error:
            for path, sentence in in_words(error, value).items():
                wrong.append(f"{'.'.join(map(str, (where, key, *path)))}: {sentence}")
    if wrong:
        raise ScenarioError("\n".join(wrong))
    arguments = {key: value for key, value in given.items() if key in named or any_other} | validated
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise ScenarioError(f"{where}: needs {', '.join(missing)}")
    return target(**arguments)


def _signature(target: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(target, eval_str=True)
    except Exception:  # an annotation may hold any expression: a name imported for type checkers alone, say
        return inspect.signature(target)


def _validated(value: Any, annotation: Any) -> Any:
    """`value` as its annotation wants it; as it is where the annotation says nothing to pydantic.

    Raises:
        ValidationError: it does not fit.
    """
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return value
    try:
        # Strict, so that neither true nor "1" passes for the number 1; as JSON, for in Python's own terms being strict
        # means that no list passes for a tuple, and no text for a path.
        return TypeAdapter(annotation).validate_json(to_json(value), strict=True)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return value
