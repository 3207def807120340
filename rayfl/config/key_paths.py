"""Key paths as messages show them: a phase by the name that its author gave it, `phases.cyclic.cohort`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfl.wording import KeyPath


def written_path(tables: Any, path: KeyPath) -> str:
    """The dotted form of a key path.

    Args:
        tables: The scenario's tables, which need not be valid.
        path: In it phases are numbered from 0.

    Returns:
        A path that also works in an override. A phase is named; one without a name, or with a name that would not
        tell which phase is meant, keeps its number, and so does the key `name` itself.
    """
    match path:
        case ("phases", int(number), *rest) if rest != ["name"]:
            path = ("phases", _name(tables, number), *rest)
    return ".".join(map(str, path))


def _name(tables: Any, number: int) -> int | str:
    phases = tables.get("phases") if isinstance(tables, Mapping) else None
    if not isinstance(phases, list | tuple):
        return number
    names = [phase.get("name") if isinstance(phase, Mapping) else None for phase in phases]
    name = names[number] if number < len(names) else None
    if not isinstance(name, str) or names.count(name) > 1:
        return number
    return name if name.strip() and not name.isdecimal() and not set(name) & set(".=\n") else number
