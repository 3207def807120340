"""Turns pydantic's validation errors into messages for the author of a scenario.

Key paths name a phase as its author does (`phases.cyclic.cohort`). A key that was renamed, or that another section has,
such as a learning rate next to `rounds` instead of in `local`, gets a message with the right key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rayfl.config.data import Data
from rayfl.config.execution import Evaluation, Numerics, Resources
from rayfl.config.local import Local
from rayfl.config.phase import ParallelPhase, config_of
from rayfl.config.registry import MEANT, kinds, nearest
from rayfl.wording import KeyPath, in_words


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
            path = ("phases", _phase_name(tables, number), *rest)
    return ".".join(map(str, path))


def _phase_name(tables: Any, number: int) -> int | str:
    phases = tables.get("phases") if isinstance(tables, Mapping) else None
    if not isinstance(phases, list | tuple):
        return number
    names = [phase.get("name") if isinstance(phase, Mapping) else None for phase in phases]
    name = names[number] if number < len(names) else None
    if not isinstance(name, str) or names.count(name) > 1:
        return number
    return name if name.strip() and not name.isdecimal() and not set(name) & set(".=\n") else number


RENAMED = {
    "phases.*.algorithm.report": "phases.*.eval_model",
    "phases.*.algorithm.server_lr": "phases.*.algorithm.server_optimizer.lr",
    "phases.*.cohort.given": "phases.*.cohort.explicit",
    "phases.*.local.fixed_last": "phases.*.train",
    "evaluation.personalize.fixed_last": "evaluation.personalize.train",
    "resources.patience_s": "resources.watchdog_s",
}
"""The new key path for every old one. `*` stands for a phase, by number or name."""


def new_name(key: str) -> str | None:
    """The new name of the key path; None if it was never a key."""
    for old, new in RENAMED.items():
        if fnmatchcase(key, old) and key.count(".") == old.count("."):
            phase = key.split(".")[1]
            return new.replace("*", phase)
    return None


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "data": Data,
    "phases.N": ParallelPhase,
    "phases.N.local": Local,
    "evaluation": Evaluation,
    "resources": Resources,
    "numerics": Numerics,
}
_AMBIGUOUS = {"name", "options", "seed"}
"""Keys that many sections have."""


def key_elsewhere(path: KeyPath, fields: Collection[str], tables: Any) -> str | None:
    """Returns the path of the intended key if another section has it.

    Args:
        path: Path of an unknown key.
        fields: The keys of its section.
        tables: The tables of the scenario, for the names of its phases.

    Returns:
        The path; None if its own section has the key under another name, or no section has it.
    """
    own = str(path[-1])
    for name in dict.fromkeys([own, MEANT.get(own.lower(), own)]):
        if name in fields or name in _AMBIGUOUS:
            return None
        for section, schema in _SECTIONS.items():
            if name in schema.model_fields:
                phase = written_path(tables, path[:2] if path[0] == "phases" else ("phases", 0))
                return f"{section}.{name}".replace("phases.N", phase)
    return None


def explain(
    error: ValidationError, schema: type[BaseModel], tables: Any, prefix: str = "", also_known: Sequence[str] = ()
) -> str:
    """Explains the errors in some tables of a scenario.

    Args:
        error: The error that pydantic raised for the tables.
        schema: The model that they were validated against.
        tables: The tables as the user wrote them.
        prefix: Key path of the tables, with a trailing dot.
        also_known: Keys of the tables in addition to those of the schema.

    Returns:
        A line for every wrong key: its path (phases by name), the allowed values, and the given value.
    """

    def unknown_key(path: KeyPath) -> str:
        fields = [*_fields(schema, path[:-1]), *(also_known if len(path) == 1 else ())]
        if str(path[-1]) in fields:
            return "has no effect with this schedule; leave it out"
        fields = [*_of_own_schedule(tables, path)] or fields
        if schema.__name__ == "Scenario" and (elsewhere := key_elsewhere(path, fields, tables)):
            return f"unknown key; did you mean '{elsewhere}'?"
        return f"unknown key; {nearest(str(path[-1]), fields)}" if fields else "unknown key"

    lines: list[str] = []
    for path, sentence in in_words(error, tables, unknown_key).items():
        key = prefix + written_path(tables, path) if path else prefix.rstrip(".") or schema.__name__.lower()
        lines += _renamed(key, sentence, _at(tables, path) if path else None) or [f"{key}: {sentence}"]
    return "\n".join(lines)


def _renamed(key: str, sentence: str, value: Any) -> list[str]:
    """The lines for a key that was renamed, or for a table that contains renamed keys; empty for others."""
    if sentence.startswith("unknown key") and (new := new_name(key)):
        return [f"{key}: is now called {new}"]
    inner = value if isinstance(value, Mapping) else {}
    return [f"{key}.{name}: is now called {new}" for name in inner if (new := new_name(f"{key}.{name}"))]


def _at(tables: Any, path: KeyPath) -> Any:
    for key in path:
        try:
            tables = tables[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tables


def annotation_at(schema: Any, path: KeyPath) -> Any:
    """Returns the type of the key at `path` in the schema; Any if the schema leaves it open.

    Raises:
        KeyError: The schema has no such key.
    """
    for key in path:
        sections = [member for member in members(schema) if isinstance(member, type) and issubclass(member, BaseModel)]
        known = [section for section in sections if str(key) in section.model_fields]
        if known:
            schema = known[0].model_fields[str(key)].annotation
        elif any(section.model_config.get("extra") == "allow" for section in sections):
            return Any
        elif sections:
            raise KeyError(key)
        elif isinstance(key, int) and get_args(without_none(schema)):
            schema = get_args(without_none(schema))[0]
        else:
            return Any
    return schema


def members(annotation: Any) -> list[Any]:
    """Returns the types that a value may have, with unions and `Annotated` unpacked and without None."""
    return [kind for kind in kinds(annotation) if kind is not type(None)]


def without_none(annotation: Any) -> Any:
    """Returns `X` for `X | None`, and anything else unchanged."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 and type(None) in get_args(annotation) else annotation


def _of_own_schedule(tables: Any, path: KeyPath) -> Sequence[str]:
    """The keys of a phase with a user-defined schedule, if `path` names a key of such a phase."""
    phase = _at(tables, path[:-1]) if path[0] == "phases" and len(path) == 3 else None
    schedule = phase.get("schedule") if isinstance(phase, Mapping) else None
    return list(config_of(schedule).model_fields) if isinstance(schedule, str) and ":" in schedule else ()


def _fields(schema: type[BaseModel], path: KeyPath) -> Sequence[str]:
    try:
        types = members(annotation_at(schema, path))
    except KeyError:
        return ()
    sections = [member for member in types if isinstance(member, type) and issubclass(member, BaseModel)]
    return list(dict.fromkeys(name for section in sections for name in section.model_fields))
