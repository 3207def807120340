"""Types and defaults in the words of scenario files: `PositiveInt` is "whole number above 0"."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PlainValidator
from pydantic.fields import FieldInfo

from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.config.section import Named

PLAIN = {bool: "true or false", str: "text", Path: "path", NoneType: "none", Any: "any value", dict: "table"}


def in_words(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Describes a type with the range of its values.

    Args:
        annotation: The type.
        metadata: The metadata that pydantic removed from its `Annotated`.
    """
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return in_words(inner, [*_flat(more), *metadata])
    if (registry := _registry(metadata)) is not None:
        return f"{registry.kind}: a name, or `{{ name = ..., ... }}`"
    members = _members(annotation)
    if len(members) > 1:
        return _listed(_of_union(members))
    (kind,) = members
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _listed([f"`{toml(value)}`" for value in arguments])
    if kind in (int, float):
        return ("whole number" if kind is int else "number") + _range(metadata)
    if origin in (tuple, list, Sequence):
        return _of_list(arguments, metadata)
    if origin in (dict, Mapping):
        return f"table from names to values: {in_words(arguments[1])}"
    if inspect.isclass(kind) and issubclass(kind, Named):
        return "a name, or `{ name = ..., ... }` with options"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return _form(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    return f"`{getattr(kind, '__name__', str(kind))}`"


def toml(value: Any) -> str:
    """Formats a value as in a scenario file."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case float() if value and (abs(value) < 1e-4 or abs(value) >= 1e16):
            return f"{value:g}".replace("e-0", "e-").replace("e+", "e")
        case Named() | Component():
            options = value.options if isinstance(value, Named) else value.model_dump(exclude_defaults=True)
            return toml({"name": value.name, **options}) if options else toml(value.name)
        case BaseModel():
            return toml(value.model_dump(exclude_unset=True))
        case Mapping():
            return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }" if value else "{}"
        case list() | tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def default_in_words(default: Any) -> str:
    """Describes the default of a key."""
    if default is None:
        return "not set"
    if isinstance(default, BaseModel) and not isinstance(default, Named | Component):
        given = default.model_dump(exclude_unset=True)
        return f"`{toml(given)}`" if given else "the defaults of its keys"
    return f"`{toml(default)}`"


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)] or [annotation]
    return [annotation]


def _of_union(members: Sequence[Any]) -> list[str]:
    """Describes every member, with Literals unpacked and without None."""
    words: list[str] = []
    for member in members:
        if member is NoneType:
            continue
        if get_origin(member) is Literal:
            words += [f"`{toml(value)}`" for value in get_args(member)]
        else:
            words.append(in_words(member))
    return list(dict.fromkeys(words))


def _of_list(arguments: Sequence[Any], metadata: Sequence[Any]) -> str:
    if not arguments:
        return "list"
    if len(arguments) == 2 and arguments[1] is not Ellipsis:
        return (
            f"pair `[a, b]`, {in_words(arguments[0])} each"
            if arguments[0] == arguments[1]
            else "pair: " + " and ".join(map(in_words, arguments))
        )
    least, most = _limit(metadata, "min_length"), _limit(metadata, "max_length")
    inner = in_words(arguments[0])
    if least and least == most:
        return f"list of {least}, each {_article(inner)}"
    return f"list, each element {_article(inner)}" + (", at least one" if least == 1 else "")


def _article(words: str) -> str:
    return f"a {words}" if words.startswith(("whole", "number", "list", "pair", "table", "path")) else words


def _form(kind: type[BaseModel]) -> str:
    """Describes a table with one key as it is written, any other as "table"."""
    fields = kind.model_fields
    if len(fields) == 1:
        (name,) = fields
        return f"`{{ {name} = ... }}`"
    required = [name for name, field in fields.items() if field.is_required()]
    return f"table `{{ {', '.join(f'{name} = ...' for name in required)} }}`" if required else "table"


def _range(metadata: Sequence[Any]) -> str:
    above, least = _limit(metadata, "gt"), _limit(metadata, "ge")
    below, most = _limit(metadata, "lt"), _limit(metadata, "le")
    if least is not None and most is not None:
        return f" from {toml(least)} to {toml(most)}"
    parts = [
        f"{words} {toml(limit)}"
        for words, limit in (("above", above), ("at least", least), ("below", below), ("at most", most))
        if limit is not None
    ]
    return (" " + " and ".join(parts)) if parts else ""


def _limit(metadata: Sequence[Any], name: str) -> Any:
    return next((value for item in _flat(metadata) if (value := getattr(item, name, None)) is not None), None)


def _flat(metadata: Sequence[Any]) -> list[Any]:
    return [inner for item in metadata for inner in (item.metadata if isinstance(item, FieldInfo) else [item])]


def _registry(metadata: Sequence[Any]) -> Registry | None:
    """Returns the registry from which a field of an algorithm is chosen, as its validator knows it."""
    for item in metadata:
        if isinstance(item, PlainValidator):
            choice = inspect.getclosurevars(item.func).nonlocals.get("self")
            if isinstance(choice, Choice):
                return choice.registry
    return None


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
