"""Pydantic's errors, in the words of the person who wrote the scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rayfl.registry import nearest
from rayfl.wording import KeyPath, in_words


def explain(error: ValidationError, schema: type[BaseModel], tables: Any, prefix: str = "") -> str:
    """One line per wrong key: its path, what is allowed, what was given. `prefix` is where `tables` lie."""

    def unknown_key(path: KeyPath) -> str:
        fields = _fields(schema, path[:-1])
        return f"unknown key; {nearest(str(path[-1]), fields)}" if fields else "unknown key"

    return "\n".join(
        f"{prefix}{'.'.join(map(str, path)) or schema.__name__.lower()}: {sentence}"
        for path, sentence in in_words(error, tables, unknown_key).items()
    )


def annotation_at(schema: Any, path: KeyPath) -> Any:
    """The type that the schema gives the key at `path`; Any where it leaves that open.

    Raises:
        KeyError: the schema has no such key.
    """
    for key in path:
        schema = without_none(schema)
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            if str(key) in schema.model_fields:
                schema = schema.model_fields[str(key)].annotation
            elif schema.model_config.get("extra") == "allow":
                return Any
            else:
                raise KeyError(key)
        elif isinstance(key, int) and get_args(schema):
            schema = get_args(schema)[0]
        else:
            return Any
    return schema


def without_none(annotation: Any) -> Any:
    """`X` of `X | None`; anything else as it is."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 and type(None) in get_args(annotation) else annotation


def _fields(schema: type[BaseModel], path: KeyPath) -> Sequence[str]:
    try:
        found = without_none(annotation_at(schema, path))
    except KeyError:
        return ()
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else ()
