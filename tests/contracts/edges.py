"""Values just inside and just outside of what a JSON schema allows, and what must be said about the latter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

KeyPath = tuple[int | str, ...]
Schema = Mapping[str, Any]
Complaint = tuple[KeyPath, str]
"""The place in the value that is wrong, and a regular expression of what is said about it."""

STEP = 2.0**-20
BOUNDS: Mapping[str, tuple[str, int, bool]] = {
    "exclusiveMinimum": ("must be greater than {}", 1, False),
    "minimum": ("must be greater than or equal to {}", 1, True),
    "exclusiveMaximum": ("must be less than {}", -1, False),
    "maximum": ("must be less than or equal to {}", -1, True),
}
"""What is said beyond a bound, the direction in which values are allowed, and whether the bound itself is."""

NO_NUMBER = "must be .*(number|integer)"


def alternatives(schema: Schema, definitions: Schema) -> list[Schema]:
    """The schemas of which a value must meet one, without null."""
    if "$ref" in schema:
        return alternatives(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return [inner for part in schema["anyOf"] for inner in alternatives(part, definitions)]
    return [] if schema.get("type") == "null" else [schema]


def complaint(value: Any, schema: Schema, definitions: Schema) -> Complaint | None:
    """What is wrong with a value; None if nothing is."""
    found = [_complaint(value, part, definitions) for part in alternatives(schema, definitions)]
    wrong = [one for one in found if one is not None]
    if not wrong or len(wrong) < len(found):
        return None
    deepest = max((path for path, _ in wrong), key=len)
    return deepest, "|".join(said for path, said in wrong if path == deepest)


def _complaint(value: Any, schema: Schema, definitions: Schema) -> Complaint | None:
    inner = schema.get("additionalProperties")
    match schema:
        case {"enum": [*allowed]}:
            return None if value in allowed else ((), "must be .*" + ".*".join(map(re.escape, map(repr, allowed))))
        case {"const": only}:
            return None if value == only else ((), f"must be .*{re.escape(repr(only))}")
        case {"type": "integer" | "number"} if not isinstance(value, int | float) or isinstance(value, bool):
            return (), f"{NO_NUMBER}|must be .* than"  # pydantic may take true for 1 first, and compare it
        case {"type": "integer"} if isinstance(value, float):
            return (), NO_NUMBER
        case {"type": "integer" | "number" as kind}:
            for name, (said, sign, reached) in BOUNDS.items():
                beyond = sign * (value - schema.get(name, value))
                if beyond < 0 or (name in schema and beyond == 0 and not reached):
                    return (), re.escape(said.format(f"{schema[name]:.12g}"))
            return ((), "must be at most 3.4e38 in magnitude") if kind == "number" and abs(value) > 1e39 else None
        case {"type": "boolean"}:
            return None if isinstance(value, bool) else ((), "must be a valid boolean")
        case {"type": "string"} if not isinstance(value, str):
            return (), "must be a valid string|is not a valid path"
        case {"type": "string"} if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return (), r"must have at (least|most) \d+ character"
        case {"type": "object"} if not isinstance(value, dict):
            return (), "must be a table|or must be "
        case {"type": "object"} if isinstance(inner, Mapping):
            return _first([(key, one, inner) for key, one in value.items()], definitions)
        case {"type": "array"} if not isinstance(value, list):
            return (), "must be a list|must be a valid (tuple|list)"
        case {"type": "array"}:
            items = schema.get("prefixItems", [schema.get("items", {})] * len(value))
            if len(value) < len(items):
                return (len(value),), "is missing"
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                return (), r"must not be empty|should have at (least|most) \d+ item"
            return _first([(number, *pair) for number, pair in enumerate(zip(value, items, strict=True))], definitions)
    return None  # a component by name, or any value


def _first(parts: list[tuple[int | str, Any, Schema]], definitions: Schema) -> Complaint | None:
    found = ((key, complaint(value, schema, definitions)) for key, value, schema in parts)
    return next((((key, *wrong[0]), wrong[1]) for key, wrong in found if wrong), None)


def candidates(schema: Schema, definitions: Schema) -> Iterator[Any]:
    """Values at the edges of a schema, on both sides."""
    for part in alternatives(schema, definitions):
        inner = part.get("additionalProperties")
        match part:
            case {"enum": [*allowed]}:
                yield from (*allowed, "no such value")
            case {"const": only}:
                yield from (only, "no such value")
            case {"type": "integer" | "number" as kind}:
                step = 1 if kind == "integer" else STEP
                for name, (_, sign, reached) in BOUNDS.items():
                    if (bound := part.get(name)) is not None:
                        yield from (bound, bound - sign * step if reached else bound + sign * step)
                yield from () if BOUNDS.keys() & part.keys() else (3 if kind == "integer" else 2.5,)
                yield from (True, "text", 1.5 if kind == "integer" else 2e39)
            case {"type": "boolean"}:
                yield from (True, False, "maybe")
            case {"type": "string"}:
                yield from ("text", "", 3, "x" * (part.get("maxLength", 0) + 1))
            case {"type": "object"} if isinstance(inner, Mapping):
                yield from (3, *({"a": one} for one in candidates(inner, definitions)))
            case {"type": "array"}:
                items = part.get("prefixItems", [part.get("items", {})] * part.get("minItems", 1))
                inside = [
                    [one for one in candidates(item, definitions) if not complaint(one, item, definitions)]
                    for item in items
                ]
                usual = [values[-1] for values in inside if values]
                yield from ([one, *usual[1:]] for one in candidates(items[0], definitions))
                yield from (usual[:-1], [*usual, *usual[-1:]])


def edges(schema: Schema, definitions: Schema) -> tuple[list[Any], list[tuple[Any, Complaint]]]:
    """The values at its edges that a schema allows, and others with what is wrong about them."""
    found = {repr(one): one for one in candidates(schema, definitions)}.values()
    judged = [(one, complaint(one, schema, definitions)) for one in found]
    return [one for one, wrong in judged if wrong is None], [(one, wrong) for one, wrong in judged if wrong]
