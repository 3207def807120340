"""Finds objects by registered name, or by `package.module:object` for user code; type hints validate their options."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path, PurePath
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from rayfl.errors import RayflError, ScenarioError
from rayfl.wording import in_words, report_as_theirs

_OTHER_NAMES = {
    "algorithm": "algo strategy method",
    "augment": "augmentation augmentations transform transforms",
    "backend": "engine",
    "batch_size": "batchsize bs local_batch_size train_batch_size minibatch_size",
    "beta": "alpha concentration",
    "clients": "num_clients n_clients number_of_clients client_num clients_num num_users",
    "clip_norm": "grad_clip gradient_clip clip_grad_norm grad_norm max_norm",
    "cohort": "clients_per_round num_clients_per_round client_fraction fraction frac participation participation_rate "
    "fraction_fit sample_rate cohort_size",
    "cpus_per_host": "num_cpus cpus",
    "data": "dataset data_set",
    "dp": "privacy differential_privacy dp_sgd",
    "epochs": "local_epochs num_epochs n_epochs epoch num_local_epochs local_ep",
    "every": "eval_every test_every eval_interval frequency frequency_of_the_test interval",
    "gpus_per_host": "num_gpus gpus",
    "hosts": "num_hosts num_workers workers num_actors",
    "lr": "learning_rate learningrate local_lr client_lr eta step_size",
    "lr_decay": "learning_rate_decay lr_gamma gamma decay_rate",
    "lr_schedule": "scheduler lr_scheduler learning_rate_schedule",
    "max_grad_norm": "clipping_norm l2_norm_clip clip max_gradient_norm",
    "metrics": "metric",
    "model": "network net architecture arch backbone",
    "noise_multiplier": "sigma noise noise_scale",
    "optimizer": "optimiser optim opt",
    "phases": "phase stages",
    "precision": "amp mixed_precision dtype",
    "rounds": "num_rounds n_rounds comm_rounds communication_rounds comm_round global_rounds total_rounds",
    "seed": "random_seed rng_seed",
    "start": "pretrained init initialization initialisation weights_from",
    "steps": "local_steps num_steps n_steps max_steps iterations local_iterations",
    "weight_decay": "wd l2 decay weightdecay",
}

MEANT = {other: key for key, others in _OTHER_NAMES.items() for other in others.split()}
"""The key for each of these names."""


STANDARD_LIBRARY = sysconfig.get_path("stdlib")

NONE = "none"
"""What stands for None in a scenario file, which cannot hold it."""

TOO_LARGE = "must be at most 3.4e38 in magnitude, the largest float32"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggests known names for a misspelt name, or for one that other simulators use (`learning_rate`).

    Returns:
        `did you mean 'a' or 'b'?`, or the list of all known names if none is similar. Names of parts of another one
        (`test_recall/3`), of which there may be hundreds, are not listed.
    """
    known = sorted(known)
    if (meant := MEANT.get(name.lower())) in known:
        return f"did you mean '{meant}'?"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    return "known: " + ", ".join(one for one in known if "/" not in one or one.partition("/")[0] not in known)


def import_object(path: str) -> Any:
    """Imports an object by its path, `package.module:object`.

    Raises:
        ScenarioError: `path` does not have that form, its module cannot be imported, or the module has no such
            attribute.
    """
    module_name, _, attribute = path.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ScenarioError(f"'{path}' is not an import path; write 'package.module:object'")
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
        known = nearest(attribute, public)
        if module_name == "__main__":
            known += " (a run can be continued only in the program that began it, by rayfl.run(resume=...))"
        raise ScenarioError(f"module '{module_name}' has no '{attribute}'; {known}") from None


class Registry:
    """Objects of one kind by name.

    Values are import paths, so listing the names imports nothing.

    Args:
        kind: The kind of object, for messages: "model", for example.
        paths: Import paths by name.
    """

    def __init__(self, kind: str, paths: Mapping[str, str]) -> None:
        self.kind = kind
        self._paths = dict(paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def resolve(self, name: str, where: str = "") -> Any:
        """Finds an object by its registered name, or else by its import path, `package.module:object`.

        Args:
            name: The name in the scenario.
            where: The key path of the name, which errors then begin with.

        Raises:
            ScenarioError: The name is not registered (similar names are suggested), the object cannot be imported, or
                it is a function or class of Python itself, such as `os:system`, which must never be called.
        """
        try:
            return self._found(name)
        except ScenarioError as error:
            if where:
                raise ScenarioError(f"{where}: {error}") from None
            raise

    def _found(self, name: str) -> Any:
        if name in self._paths:
            return import_object(self._paths[name])
        if ":" in name:
            target = import_object(name)
            if _is_pythons_own(target) or _is_pythons_own_module(name.partition(":")[0]):
                raise ScenarioError(f"{self.kind} '{name}': is part of Python, so rayfl did not call it")
            return target
        raise ScenarioError(
            f"unknown {self.kind} '{name}'; {nearest(name, self._paths)} (your own: 'package.module:object')"
        )


def _is_pythons_own_module(name: str) -> bool:
    """Whether it is a module of Python. Libraries may have replaced objects in it: Ray replaces print, W&B exit."""
    file = getattr(sys.modules.get(name), "__file__", None)
    own = name.partition(".")[0] in sys.stdlib_module_names
    return own and (file is None or Path(file).is_relative_to(STANDARD_LIBRARY))


def _is_pythons_own(target: Any) -> bool:
    """Whether it is a function or class of the interpreter or the standard library."""
    if isinstance(target, partial):
        return _is_pythons_own(target.func)
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        return False
    package = (target.__module__ or "builtins").split(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    # a user's module may have the name of a module of Python
    return package in sys.stdlib_module_names and (file is None or Path(file).is_relative_to(STANDARD_LIBRARY))


def call_with_options(
    target: Callable[..., Any], options: Mapping[str, Any], provided: Mapping[str, Any], where: str
) -> Any:
    """Calls `target` with the options from a scenario, and with those arguments from rayfl that its signature names.

    Args:
        target: A class or function, possibly user code.
        options: Plain values from the scenario; `target` must accept all of them, by name or by `**kwargs`.
        provided: Arguments from rayfl, such as the number of classes. They are not validated; each is passed only if
            the signature names it and `options` does not.
        where: Key path of the options, for messages.

    Returns:
        The value that `target` returns.

    Raises:
        ScenarioError: An option is unknown, missing or does not fit its annotation, or `target` raised an exception.
    """
    validated = check_options(target, options, provided, where)
    named, _ = parameters(target, where)
    arguments = {key: value for key, value in provided.items() if key in named} | validated
    try:
        return target(**arguments)
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise ScenarioError(report_as_theirs(error, f"{where}: {_name(target)}")) from None


def check_options(
    target: Callable[..., Any], options: Mapping[str, Any], known: Iterable[str], where: str
) -> dict[str, Any]:
    """Checks options without calling the target.

    Pydantic validates and converts each against the annotation of its parameter: `beta: PositiveFloat`,
    `mode: Literal["zeros", "reflect"]`.

    Args:
        target: The class or function that takes the options.
        options: Plain values from the scenario.
        known: Names of the arguments that rayfl will provide.
        where: Key path of the options, for errors.

    Returns:
        The options, converted to their annotations.

    Raises:
        ScenarioError: An option is unknown to `target` or does not fit its annotation, or a required one is missing.
    """
    from pydantic import ValidationError  # takes longer to load than the shell's completion should
    from pydantic_core import PydanticSerializationError

    named, any_other = parameters(target, where)
    validated: dict[str, Any] = {}
    wrong: list[str] = []
    options = {key: None if _is_none(named.get(key, any_other), value) else value for key, value in options.items()}
    for key, value in options.items():
        parameter = named.get(key, any_other)
        if parameter is None:
            raise ScenarioError(f"{where}.{key}: not an option of '{where}'; {nearest(key, named)}")
        try:
            validated[key] = _validated(value, parameter.annotation)
            if too_large(validated[key]):
                wrong.append(f"{where}.{key}: {TOO_LARGE} (got {value!r})")
        except ValidationError as error:
            for path, sentence in in_words(error, value).items():
                wrong.append(f"{'.'.join(map(str, (where, key, *path)))}: {sentence}")
        except PydanticSerializationError as error:
            wrong.append(f"{where}.{key}: is nested too deeply or not a plain value ({error})")
    if wrong:
        raise ScenarioError("\n".join(wrong))
    provided = {*known, *options}
    missing = [name for name, p in named.items() if p.default is p.empty and name not in provided]
    if missing:
        raise ScenarioError(f"{where}: needs {', '.join(missing)}")
    return validated


def _is_none(parameter: inspect.Parameter | None, value: Any) -> bool:
    return value == NONE and isinstance(value, str) and parameter is not None and reads_none(parameter.annotation)


def reads_none(annotation: Any) -> bool:
    """Whether "none" in a scenario stands for None: a value may be None, and cannot be that text."""
    types = kinds(annotation)
    return type(None) in types and not any(map(_may_be_text, types))


def _may_be_text(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return any(member.value == NONE for member in kind)
    if kind in (Any, object) or NONE in get_args(kind):
        return True
    return isinstance(kind, type) and issubclass(kind, str | PurePath)


def kinds(annotation: Any) -> list[Any]:
    """The types that a value may have, with unions and `Annotated` taken apart."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in kinds(member)]
    return [annotation]


def too_large(value: Any) -> bool:
    """Whether an option is, or a list or table in it holds, a finite float beyond float32, in which models compute."""
    if isinstance(value, Mapping):
        return any(map(too_large, value.values()))
    if isinstance(value, list | tuple):
        return any(map(too_large, value))
    return isinstance(value, float) and 3.4028234663852886e38 < abs(value) < math.inf


def asks_for(target: Callable[..., Any], argument: str) -> bool:
    """Whether the signature names this argument, so `call_with_options` passes it if rayfl provides it."""
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
    named, _ = parameters(target, where)
    provided = set(known)
    return {name: p.default for name, p in named.items() if p.default is not p.empty and name not in provided}


def parameters(target: Callable[..., Any], where: str) -> tuple[dict[str, inspect.Parameter], inspect.Parameter | None]:
    """The parameters that can be given by name, and the `**options` parameter if there is one."""
    parameters = _signature(target, where).parameters.values()
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)


def _signature(target: Callable[..., Any], where: str) -> inspect.Signature:
    is_definition = inspect.isclass(target) or inspect.isfunction(target)  # other objects may have no hash
    try:
        return _evaluated(target) if is_definition else inspect.signature(target, eval_str=True)
    except Exception:  # an annotation can be any expression, such as a name imported only for type checkers
        pass
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        raise ScenarioError(f"{where}: {target!r} cannot be called with options") from None


@lru_cache(maxsize=256)
def _evaluated(target: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(target, eval_str=True)


def _validated(value: Any, annotation: Any) -> Any:
    """Converts a value to its annotation; returns it unchanged if pydantic does not understand the annotation.

    Raises:
        ValidationError: The value does not fit.
        PydanticSerializationError: The value is nested too deeply.
    """
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
    from pydantic_core import to_json

    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return value
    try:
        # strict rejects true and "1" for the number 1; JSON accepts a list for a tuple and text for a path, which
        # strict validation of Python objects would reject
        return TypeAdapter(annotation).validate_json(to_json(value), strict=True)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return value
