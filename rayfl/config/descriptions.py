"""Reads the descriptions of scenario keys from the docstrings of their sections."""

from __future__ import annotations

import inspect
import re

from pydantic import BaseModel

_ENTRY = re.compile(r"    (\w+): (.*)")


def own_descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The entries of the "Attributes:" section of a class's own docstring, each as one line."""
    found: dict[str, str] = {}
    _, _, attributes = inspect.cleandoc(section.__doc__ or "").partition("\nAttributes:\n")
    for line in attributes.splitlines():
        if entry := _ENTRY.fullmatch(line):
            name, text = entry.groups()
            found[name] = text
        elif line.startswith("        "):
            found[name] += f" {line.strip()}"
        else:
            break  # the next section of the docstring
    return found


def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The description of every key of a section, in the order of its fields.

    A key is described by the class that declares it, or by the nearest base class that describes it.

    Raises:
        KeyError: A key has no description.

    Example:
        >>> descriptions(Uniform)["uniform"]
        'The smallest and the largest number, [least, most], both included and at least 1.'
    """
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel):
            found |= own_descriptions(base)
    return {key: found[key] for key in section.model_fields}
