"""Digests of user code and data in a run's records, and how they differ from another run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfl.errors import RayflError, ResourceError
from rayfl.reading import read_json_object, reading
from rayfl.report.folder import ENVIRONMENT_FILE


@dataclass(frozen=True)
class Recorded:
    """The digests in environment.json; older versions of rayfl did not record them all.

    Attributes:
        code: Digests of user modules and versions of installed packages, including those of its starts; None if not
            recorded.
        data: The digest of the run's data, then of the data of the scenario that it starts from, and so on; empty if
            not recorded.
        version: The version of rayfl; None if not recorded.
        traces: The digests of the files that [participation] names.
        weights: How each phase's 4-D weights are stored; empty if not recorded.
    """

    code: Mapping[str, str] | None
    data: Sequence[str]
    version: str | None = None
    traces: Sequence[str] = ()
    weights: Sequence[str] = ()


_SHAPES: Mapping[str, type] = {
    **dict.fromkeys(("packages", "driver", "numerics", "data", "headline", "code"), dict),
    **dict.fromkeys(("hosts", "data.files", "traces"), list),
    **dict.fromkeys(("data.name", "data.source", "data.description", "data.digest", "data.summary"), str),
    **dict.fromkeys(("headline.metric", "headline.on"), str),
}
"""Keys of environment.json that readers look into; older records lack some of them."""


def read_environment(folder: Path, error: type[RayflError] = ResourceError) -> dict[str, Any]:
    """The content of environment.json in a run's folder, for readers of old and copied records; empty without the file.

    Raises:
        RayflError: It is damaged, or a value has another type than rayfl writes.
    """
    path = folder / ENVIRONMENT_FILE
    found = read_json_object(path, error) if path.exists() else {}
    with reading(path, "as the environment of a run", error):
        for key, kind in _SHAPES.items():
            table, _, last = key.rpartition(".")
            values = found.get(table, {}) if table else found
            if last in values and not isinstance(values[last], kind):
                raise TypeError(f"{key} is {values[last]!r}")
            if kind is list and not all(isinstance(item, dict) for item in values.get(last, ())):
                raise TypeError(f"{key} holds other values than tables")
    return found


def recorded(folder: Path) -> Recorded:
    """Reads the records in a run's folder.

    Raises:
        ResourceError: The records are missing or damaged.
    """
    path = folder / ENVIRONMENT_FILE
    environment = read_environment(folder) or read_json_object(path, ResourceError)  # raises if there is no file
    with reading(path, "as the environment of a run", ResourceError):
        start = environment.get("start") or {}
        own = environment["data"].get("digest")
        data = [own, *start.get("data", ())] if own else []
        traces = [trace["sha256"] for trace in environment.get("traces", ())]
        models = [phase.get("model", {}) for phase in environment.get("phases", ())]
        weights = [model["weights"] for model in models if "weights" in model]
        return Recorded(environment.get("code"), data, environment.get("packages", {}).get("rayfl"), traces, weights)


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differences in words: `'mydata'`, `'scipy' (scipy 1.15, now scipy 1.16)`, `'helpers' (not used before)`."""
    words = []
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if one is None or other is None:
            words.append(f"'{name}' ({'not used before' if one is None else 'no longer used'})")
        else:
            words.append(f"'{name}'" + (f" ({one}, now {other})" if " " in one + other else ""))
    return words
