"""Objects by name: a short registered name, or `package.module:object` for a user's own; type hints check options."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from rayfl.errors import RayflError, ScenarioError
from rayfl.synonyms import MEANT
from rayfl.user_code import report_as_theirs
from rayfl.wording import in_words

STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggests what a misspelt name, or one that others use (`learning_rate`), may have meant.

    Returns:
        `did you mean 'a' or 'b'?`, or the list of all known names where none is similar.
    """
    known = sorted(known)
    if (meant := MEANT.get(name.lower())) in known:
        return f"did you mean '{meant}'?"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return "known: " + ", ".join(known)


def import_object(path: str) -> Any:
    """Imports an object by its path, `package.module:object`.

    Raises:
        ScenarioError: `path` does not have that form, its module cannot be imported, or the module has no such
            attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ScenarioError(f"'{path}' is no import path; write 'package.module:object'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ScenarioError(f"cannot import '{path}': {error} (is its folder on PYTHONPATH?)") from error
    except (Exception, SystemExit) as error:  # importing runs the module, which may raise anything
        raise ScenarioError(report_as_theirs(error, f"cannot import '{path}': module '{module_name}'")) from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ScenarioError(f"module '{module_name}' has no '{attribute}'; {nearest(attribute, public)}") from None


class Registry:
    """Objects of one kind by name.

    Values are import paths, so that listing the names imports nothing.

    Args:
        kind: What the objects are, for messages: "model", say.
        paths: From each name to its import path.
    """

    def __init__(self, kind: str, paths: Mapping[str, str]) -> None:
        self.kind = kind
        self._paths = dict(paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def resolve(self, name: str) -> Any:
        """Finds an object by its registered name, or else by its import path, `package.module:object`.

        Raises:
            ScenarioError: The name is not registered (similar names are suggested), the object cannot be imported, or
                it is a function or class of Python itself, which `os:system` shows should not be called on trial.
        """
        if name in self._paths:
            return import_object(self._paths[name])
        if ":" in name:
            found = import_object(name)
            if _is_pythons_own(found) or _is_pythons_own_module(name.partition(":")[0]):
                raise ScenarioError(f"{self.kind} '{name}': is part of Python and no {self.kind}, so it was not called")
            return found
        raise ScenarioError(
            f"unknown {self.kind} '{name}'; {nearest(name, self._paths)} (your own: 'package.module:object')"
        )


def _is_pythons_own_module(name: str) -> bool:
    """Whether it is a module of Python, in which libraries may have replaced something: Ray does print, W&B exit."""
    file = getattr(sys.modules.get(name), "__file__", None)
    own = name.partition(".")[0] in sys.stdlib_module_names
    return own and (file is None or Path(file).is_relative_to(STANDARD_LIBRARY))


def _is_pythons_own(found: Any) -> bool:
    """Whether it is a function or class of the interpreter or the standard library."""
    if isinstance(found, partial):
        return _is_pythons_own(found.func)
    if not (inspect.isroutine(found) or inspect.isclass(found)):
        return False
    package = (found.__module__ or "builtins").split(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    # A user's module may have the name of one of Python's.
    return package in sys.stdlib_module_names and (file is None or Path(file).is_relative_to(STANDARD_LIBRARY))


def call_with_options(
    target: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any], where: str
) -> Any:
    """Calls `target` with the options that a scenario gives it, and with what rayfl knows where it asks for that.

    Args:
        target: A class or function, possibly a user's own.
        options: Plain values from the scenario; `target` must accept all of them, by name or by `**kwargs`.
        given: What rayfl knows (the number of classes, say). It is not validated, and each argument is passed only
            where the signature names it and `options` does not.
        where: Key path of the options, for messages.

    Returns:
        What `target` returns.

    Raises:
        ScenarioError: An option is unknown, missing or does not fit its annotation, or `target` raised something.
    """
    validated = check_options(target, options, given, where)
    named, _ = _parameters(target, where)
    arguments = {key: value for key, value in given.items() if key in named} | validated
    try:
        return target(**arguments)
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # a user's own code may raise anything
        raise ScenarioError(report_as_theirs(error, f"{where}: {_name(target)}")) from None


def check_options(
    target: Callable[..., Any], options: Mapping[str, Any], known: Iterable[str], where: str
) -> dict[str, Any]:
    """Checks the options of a target that is not called yet.

    Each is validated, and converted, by pydantic against the annotation of its parameter: `beta: PositiveFloat`,
    `mode: Literal["zeros", "reflect"]`.

    Args:
        target: What will be called with them.
        options: From the scenario, hence plain values.
        known: Names of the arguments that rayfl will provide.
        where: The key path of the options, which errors name.

    Returns:
        The options as their annotations want them.

    Raises:
        ScenarioError: An option that `target` does not take or that does not fit its annotation, or a required one that
            is missing.
    """
    named, any_other = _parameters(target, where)
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
        except PydanticSerializationError as error:
            wrong.append(f"{where}.{key}: is nested too deeply or no plain value ({error})")
    if wrong:
        raise ScenarioError("\n".join(wrong))
    provided = {*known, *options}
    missing = [name for name, p in named.items() if p.default is p.empty and name not in provided]
    if missing:
        raise ScenarioError(f"{where}: needs {', '.join(missing)}")
    return validated


def asks_for(target: Callable[..., Any], argument: str) -> bool:
    """Whether the signature names this argument, so that `call_with_options` passes it where rayfl knows it."""
    return argument in _signature(target, argument).parameters


def takes_option(target: Callable[..., Any], option: str) -> bool:
    """Whether `call_with_options` accepts this option: the signature names it, or has `**kwargs`."""
    return asks_for(target, option) or any(
        p.kind is p.VAR_KEYWORD for p in _signature(target, option).parameters.values()
    )


def first_parameter(target: Callable[..., Any], where: str) -> tuple[str, ...]:
    """The name of the parameter that rayfl passes to a function of one argument; the others are options.

    Raises:
        ScenarioError: The signature cannot be read.
    """
    return tuple(_signature(target, where).parameters)[:1]


def _name(target: Callable[..., Any]) -> str:
    named = target.func if isinstance(target, partial) else target
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"'{named.__module__}:{named.__qualname__}'"


def default_options(target: Callable[..., Any], known: Iterable[str], where: str) -> dict[str, Any]:
    """The defaults in the signature of `target`, except for the arguments in `known`, which rayfl provides."""
    named, _ = _parameters(target, where)
    provided = set(known)
    return {name: p.default for name, p in named.items() if p.default is not p.empty and name not in provided}


def _parameters(
    target: Callable[..., Any], where: str
) -> tuple[dict[str, inspect.Parameter], inspect.Parameter | None]:
    """The parameters that can be given by name, and `**options` where there is such a one."""
    parameters = _signature(target, where).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)


def _signature(target: Callable[..., Any], where: str) -> inspect.Signature:
    try:
        return inspect.signature(target, eval_str=True)
    except Exception:  # an annotation may hold any expression: a name imported for type checkers alone, say
        pass
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        raise ScenarioError(f"{where}: {target!r} cannot be called with options") from None


def _validated(value: Any, annotation: Any) -> Any:
    """Converts a value to its annotation; leaves it alone where the annotation means nothing to pydantic.

    Raises:
        ValidationError: The value does not fit.
        PydanticSerializationError: The value is nested too deeply.
    """
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return value
    try:
        # Strict, so that neither true nor "1" passes for the number 1; as JSON, for in Python's own terms being strict
        # means that no list passes for a tuple, and no text for a path.
        return TypeAdapter(annotation).validate_json(to_json(value), strict=True)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return value
