"""The keys of a scenario and the names of its phases, for the shell's completion, which cannot wait for the schema."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import rayfl
from rayfl.config.scenario_files import find
from rayfl.data.files import cache_folder
from rayfl.errors import ScenarioError
from rayfl.files import write_json

ANY_PHASE = "phases.*"
"""The section of `keys_by_section` that holds the keys of every phase, whatever its schedule."""

MOST_BASES = 100
"""Files to look through for the phases; more are a circle of bases."""

_Keys = dict[str, list[str]]


def keys_by_section() -> _Keys:
    """The keys of every section: `{"": ["seed=", "data.", ...], "data": ["clients=", ...]}`.

    Loading the schema takes about half a second of CPU time, so the keys are cached until a file of the schema changes.

    Returns:
        The last part of each key, with `=` behind a value's and `.` behind a section's, by the section's dotted path.
    """
    cache = cache_folder() / "completion" / "keys.json"
    stamp = _stamp()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # not there yet, or damaged
        cached = json.loads(cache.read_text(encoding="utf-8"))
        if cached["stamp"] == stamp:
            keys: _Keys = cached["keys"]
            return keys
    keys = keys_of_schema()
    # where nothing can be written, the next completion takes as long as this one
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, {"stamp": stamp, "keys": keys})
    return keys


def keys_of_schema() -> _Keys:
    """What `keys_by_section` returns, from the schema itself."""
    from rayfl.config.scenario import Scenario
    from rayfl.config.validation import annotation_at, members

    phases = members(annotation_at(Scenario, ("phases", 0)))
    keys = {**_sections("", [Scenario]), **_sections(ANY_PHASE, phases)}
    keys[""] = ["phases." if key == "phases=" else key for key in keys[""]]
    return keys


def phase_names(scenario: str) -> list[str]:
    """The phases of a scenario by name, or by number where they have none; nothing of the scenario is validated."""
    folder: Path | None = None
    for _ in range(MOST_BASES):
        try:
            path = find(scenario, folder)
            tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (ScenarioError, OSError, ValueError, RecursionError):  # the run itself will say what is wrong with it
            return []
        match tables:
            case {"phases": [*phases]}:
                named = [phase.get("name") if isinstance(phase, dict) else None for phase in phases]
                return [str(number if name is None else name) for number, name in enumerate(named)]
            case {"base": str(base)}:
                scenario, folder = base, path.parent
            case _:
                return []
    return []


def _stamp() -> list[str | int]:
    """What the cache depends on: where the schema is, its version, and when it last changed."""
    schema = Path(rayfl.__file__).parent / "config"
    return [str(schema), rayfl.__version__, max(file.stat().st_mtime_ns for file in schema.glob("*.py"))]


def _sections(path: str, kinds: list[Any]) -> _Keys:
    """The keys of one section, and of all sections in it."""
    from rayfl.config.validation import members

    inner = {
        name: _models(members(field.annotation)) for kind in _models(kinds) for name, field in kind.model_fields.items()
    }
    keys = {path: [f"{name}{'.' if models else '='}" for name, models in inner.items()]}
    for name, models in inner.items():
        if models:
            keys |= _sections(f"{path}.{name}" if path else name, models)
    return keys


def _models(kinds: list[Any]) -> list[Any]:
    from pydantic import BaseModel

    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
