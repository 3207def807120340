"""Base class of all sections of a scenario, choices by name, and the descriptions of keys from docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from rayfl.config.registry import NONE, TOO_LARGE, kinds, reads_none, too_large


class Section(BaseModel):
    """A table of the scenario: frozen, with unknown keys rejected.

    "none" resets an optional key that a base, or the scenario to start from, has set: `dp = "none"`, `clip_norm =
    "none"`. (Where any text is a valid value, as for the path `start.file`, "none" is just text.)

    Every field of a section is described in the `Attributes:` section of the docstring of its class, or of the nearest
    base class that describes it. The reference of scenario keys is generated from these descriptions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    @model_validator(mode="before")
    @classmethod
    def _none_by_name(cls, value: Any) -> Any:
        return with_nones(cls, value)

    @field_validator("*", mode="wrap")
    @classmethod
    def _numbers(cls, value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Rejects booleans, which pydantic takes for 0 and 1, and numbers too large for float32."""
        validated = validate(value)
        types, whole = _types_of(cls, str(info.field_name))
        if types & {int, float} and not types & {bool, Any} and _has_boolean(value, whole):
            raise PydanticCustomError("number", "must be a number")
        if float in types and too_large(validated):
            raise PydanticCustomError("number", TOO_LARGE)
        return validated


class Named(BaseModel):
    """A choice by name, with options: `"crop"` or `{ name = "crop", padding = 2 }`.

    The options are all keys except the name. The schema does not know them; they are checked against the signature of
    the chosen class or function.

    Attributes:
        name: A registered name, or `package.module:object` for your own.
    """

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants")

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        target = value.get("name") if isinstance(value, Mapping) else value
        if callable(target):
            raise ValueError(_by_path(target))
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _options_are_plain(self) -> Named:
        check_plain(self.options)
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options as the scenario gives them."""
        return dict(self.model_extra or {})


def _by_path(target: Any) -> str:
    module, name = getattr(target, "__module__", "?"), getattr(target, "__qualname__", type(target).__qualname__)
    if "<" in name:
        return f"give its import path, 'package.module:object'; {name} has none, so define it in a module"
    return f"give its import path, '{module}:{name}', instead of the object itself"


@cache
def _types_of(section: type[BaseModel], field: str) -> tuple[frozenset[Any], bool]:
    """The types in a field's annotation, and whether no section is among them."""
    types = frozenset(_leaves(section.model_fields[field].annotation))
    return types, not any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in types)


def _leaves(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, also those of elements."""
    for kind in kinds(annotation):
        inner = get_args(kind)
        if inner and get_origin(kind) is not Literal:
            for part in inner:
                yield from _leaves(part)
        else:
            yield kind


def _has_boolean(value: Any, in_elements: bool) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return in_elements and any(_has_boolean(part, True) for part in value)
    return isinstance(value, bool)


def with_nones(section: type[BaseModel], value: Any) -> Any:
    """The keys of a table, with None for each "none" where no text is a valid value; anything else as it is."""
    if not isinstance(value, Mapping):
        return value
    named = {key for key, inner in value.items() if isinstance(inner, str) and inner == NONE}
    undone = {key for key in named & section.model_fields.keys() if may_be_open(section.model_fields[key])}
    return {key: None if key in undone else inner for key, inner in value.items()} if undone else value


def may_be_open(field: FieldInfo) -> bool:
    """Whether "none" stands for None in a field."""
    by_name = (kind for kind in kinds(field.annotation) if isinstance(kind, type) and issubclass(kind, Named))
    return reads_none(field.annotation) and not any(by_name)


def check_idle(section: BaseModel, idle: Mapping[str, bool], when: str) -> None:
    """Checks that options without effect are at their defaults.

    Args:
        section: The section with the options.
        idle: For each option, whether it has no effect.
        when: The condition, for the message: "with form = 'code'".

    Raises:
        ValueError: An option without effect was changed.
    """
    for key in (key for key, nothing_reads_it in idle.items() if nothing_reads_it):
        if getattr(section, key) != type(section).model_fields[key].get_default(call_default_factory=True):
            raise ValueError(f"{key} has no effect {when}; leave it out")


def check_plain(options: Mapping[str, Any]) -> None:
    """Checks that a scenario file can hold the options.

    Raises:
        ValueError: A value, at any depth, is not text, a number, a boolean, or a list or table of these; or a key is
            not text.
    """
    for key, value in options.items():
        if type(key) is not str:
            raise ValueError(f"the key {key!r} must be text, not a {type(key).__name__}")
        _check_plain(key, value)


def _check_plain(key: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for inner, part in value.items():
            check_plain({f"{key}.{inner}" if type(inner) is str else inner: part})
    elif isinstance(value, list | tuple):
        for part in value:
            _check_plain(key, part)
    elif type(value) not in (bool, int, float, str, type(None)):
        raise ValueError(
            f"option '{key}' must be text, a number, true or false, or a list or table of these, "
            f"not a {type(value).__module__}.{type(value).__qualname__}"
        )


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    check_plain(options)
    return options


PlainOptions = Annotated[dict[str, Any], AfterValidator(_plain)]
"""Options that a scenario file can hold; see `check_plain`."""


_ENTRY = re.compile(r"    (\w+): (.*)")


def own_descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The entries of the "Attributes:" section of a class's own docstring, each as one line."""
    entries: dict[str, str] = {}
    _, _, attributes = inspect.cleandoc(section.__doc__ or "").partition("\nAttributes:\n")
    for line in attributes.splitlines():
        if entry := _ENTRY.fullmatch(line):
            name, text = entry.groups()
            entries[name] = text
        elif line.startswith("        "):
            entries[name] += f" {line.strip()}"
        else:
            break  # the next section of the docstring
    return entries


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The description of every key of a section, in the order of its fields.

    A key is described by the class that declares it, or by the nearest base class that describes it.

    Raises:
        KeyError: A key has no description.

    Example:
        >>> descriptions(Uniform)["uniform"]
        'The smallest and the largest number, [least, most], both included and at least 1.'
    """
    entries: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel):
            entries |= own_descriptions(base)
    return {key: entries[key] for key in section.model_fields}
