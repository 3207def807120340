"""Pydantic's errors, in the words of the person who wrote the scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rayfl.registry import nearest

Path = tuple[int | str, ...]


def explain(error: ValidationError, schema: type[BaseModel], tables: Any, prefix: str = "") -> str:
    """One line per wrong key: its path, what is allowed, what was given. `prefix` is where `tables` lie."""
    messages: dict[Path, list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _written_path(detail["loc"], tables, missing=detail["type"] == "missing")
        if detail["type"] == "extra_forbidden":
            fields = _fields(schema, path[:-1])
            text = f"unknown key; {nearest(str(path[-1]), fields)}" if fields else "unknown key"
        elif detail["type"] == "missing":
            text = "is missing"
        else:
            text = detail["msg"].removeprefix("Value error, ").replace("Input should be ", "must be ")
        messages.setdefault(path, [])
        if text not in messages[path]:
            messages[path].append(text)
    lines = []
    for path, texts in messages.items():
        line = f"{prefix}{'.'.join(map(str, path)) or schema.__name__.lower()}: {' or '.join(texts)}"
        given = _at(tables, path)
        lines.append(line if given is None or isinstance(given, Mapping) else f"{line} (got {given!r})")
    return "\n".join(lines)


def annotation_at(schema: Any, path: Path) -> Any:
    """The type that the schema gives the key at `path`; Any where it leaves that open.

    Raises:
        KeyError: the schema has no such key.
    """
    for key in path:
        schema = _strip_optional(schema)
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


def _strip_optional(annotation: Any) -> Any:
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 and type(None) in get_args(annotation) else annotation


def _fields(schema: type[BaseModel], path: Path) -> Sequence[str]:
    try:
        found = _strip_optional(annotation_at(schema, path))
    except KeyError:
        return ()
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else ()


def _written_path(location: Path, tables: Any, missing: bool) -> Path:
    """The part of an error's location that stands in the file: pydantic appends the tags of unions."""
    path: list[int | str] = []
    for key in location:
        try:
            tables = tables[key]
        except (KeyError, IndexError, TypeError):
            if missing:
                path.append(key)
            break
        path.append(key)
    return tuple(path)


def _at(tables: Any, path: Path) -> Any:
    for key in path:
        try:
            tables = tables[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tables
