"""Rewords pydantic's errors for users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

KeyPath = tuple[int | str, ...]
"""The place of a value in nested tables and lists: ("phases", 0, "rounds")."""

_OWN_WORDS = {
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
}
"""Replacements for pydantic's messages about Python types."""


def in_words(
    error: ValidationError, given: Any, unknown_key: Callable[[KeyPath], str] = lambda path: "unknown key"
) -> dict[KeyPath, str]:
    """Rewords an error of pydantic for the user: the allowed values, and the given one.

    Args:
        error: The error about `given`.
        given: The values that the user wrote.
        unknown_key: Makes the sentence about a key that does not exist, from its path.

    Returns:
        A sentence for every wrong part of `given`, by its path; `given` itself is at ().
    """
    messages: dict[KeyPath, list[str]] = {}
    values: dict[KeyPath, Any] = {}
    details = error.errors(include_url=False)
    places = [_locate(detail["loc"], given, detail["type"] == "missing")[0] for detail in details]
    for detail in details:
        if detail["type"] == "too_short" and any(_within(other["loc"], detail["loc"]) for other in details):
            continue  # pydantic leaves out wrong elements, and then finds too few
        missing = detail["type"] == "missing"
        path, value = _locate(detail["loc"], given, missing)
        if isinstance(value, Mapping) and any(_within(other, path) for other in places):
            continue  # of a union, it is the table that was meant, and an error inside it says what is wrong
        if detail["type"] == "extra_forbidden":
            text = unknown_key(path)
        elif detail["type"] in _OWN_WORDS:
            text = _OWN_WORDS[detail["type"]]
        else:
            said = detail["msg"].removeprefix("Value error, ")
            text = said.replace("Input should be ", "must be ").replace("String should ", "must ")
        values[path] = value
        if text not in messages.setdefault(path, []):
            messages[path].append(text)
    return {
        path: " or ".join(texts) + ("" if _not_shown(values[path]) else f" (got {_shortened(repr(values[path]))})")
        for path, texts in messages.items()
    }


def _within(location: KeyPath, outer: KeyPath) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _not_shown(value: Any) -> bool:
    tables = isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value)
    return value is None or isinstance(value, Mapping) or tables


def _shortened(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _locate(location: KeyPath, given: Any, missing: bool) -> tuple[KeyPath, Any]:
    """The part of an error's location that the user wrote, and its value: pydantic adds the tags of unions."""
    path: KeyPath = ()
    for depth, key in enumerate(location):
        try:
            given = given[key]
        except (KeyError, IndexError, TypeError):
            if depth == len(location) - 1:
                return ((*path, key), None) if missing else (path, given)
            if not isinstance(given, Mapping):
                return path, given
        else:
            path = (*path, key)
    return path, given
