"""The user's code and the data as a run's records have them, and how they differ from those of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rayfl.errors import ResourceError
from rayfl.reading import read_json_object, reading


@dataclass(frozen=True)
class Recorded:
    """What environment.json says; a run of a version that recorded nothing of it cannot be compared.

    Attributes:
        code: Digests of the user's modules and versions of installed packages, those behind its start included; None
            where it has none recorded.
        data: The digest of its data, then of the data behind the scenario that it starts from, and so on; empty where
            it has none recorded.
        version: Of rayfl; None where none is recorded.
        traces: The digests of the files that [participation] names.
    """

    code: Mapping[str, str] | None
    data: Sequence[str]
    version: str | None = None
    traces: Sequence[str] = ()


def recorded(folder: Path) -> Recorded:
    """Reads the records in a run's folder.

    Raises:
        ResourceError: They are missing or damaged.
    """
    path = folder / "environment.json"
    environment = read_json_object(path, ResourceError)
    with reading(path, "as the environment of a run", ResourceError):
        start = environment.get("start") or {}
        own = environment["data"].get("digest")
        data = [own, *start.get("data", ())] if own else []
        traces = [trace["sha256"] for trace in environment.get("traces", ())]
        return Recorded(environment.get("code"), data, environment.get("packages", {}).get("rayfl"), traces)


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """In words, what differs: `'mydata'`, `'scipy' (scipy 1.15, now scipy 1.16)`, `'helpers' (not used before)`."""
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
