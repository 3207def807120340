"""Writes out the defaults of choices by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from rayfl.config.section import Named, check_plain
from rayfl.errors import ScenarioError
from rayfl.registry import check_options, default_options


def with_defaults(chosen: Named, target: Callable[..., Any], known: Iterable[str], where: str) -> Named:
    """The same choice with its options checked and its default options written out.

    A default is left out if a scenario file cannot hold it (None, alone or in a list, or a value that is not plain) or
    if its own annotation rejects it, so the written scenario can always be read again.

    Args:
        chosen: A name with options.
        target: The class or function behind the name.
        known: Names of arguments that rayfl provides, which are not options.
        where: The key path of the choice, for errors.

    Raises:
        ScenarioError: `target` does not take an option, an option does not fit its annotation, or a required option is
            missing.

    Example:
        >>> with_defaults(Named(name="mlp"), MLP, ["num_classes", "input_shape"], "model")
        Named(name='mlp', hidden=[200, 200])
    """
    known = list(known)
    check_options(target, chosen.options, known, where)
    options = dict(chosen.options)
    for key, value in default_options(target, [*known, *options], where).items():
        try:
            plain = to_jsonable_python(value)
            if _holds_none(plain):
                continue
            check_plain({key: plain})
            check_options(target, {key: plain}, [*known, *options], where)
        except (PydanticSerializationError, ValueError, ScenarioError):
            continue
        options[key] = plain
    return Named.model_validate({**options, "name": chosen.name})


def _holds_none(plain: Any) -> bool:
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return plain is None or any(_holds_none(part) for part in parts)
