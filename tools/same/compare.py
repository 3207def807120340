"""Compares two folders of JSON and text, and sorts out the differences that are intended."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

FAILED = "failed "
"""Begins what a probe writes for what did not run or was refused: a difference even if both sides say the same."""
_NOTHING = object()


class Difference(NamedTuple):
    """One value that differs.

    Attributes:
        where: `part/file:key.path`, or `part/file:line` in a text.
        before: The value on the one side; "(nothing)" where there is none.
        after: The value on the other side.
    """

    where: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.where}\n    - {_short(self.before)}\n    + {_short(self.after)}"


def compare(part: str, before: Path, after: Path, only: Sequence[str] | None = None) -> list[Difference]:
    """The differences between two folders.

    Args:
        part: Begins the places of all differences.
        before: The one folder.
        after: The other folder.
        only: Names in it to compare; by default all.
    """
    sides = [_files(before, only), _files(after, only)]
    found: list[Difference] = []
    for name in sorted({*sides[0], *sides[1]}):
        one, other = (_content(side[name]) if name in side else _NOTHING for side in sides)
        of_file = list(_differences(f"{part}/{name}:", one, other))
        if not of_file and sides[0][name].read_bytes() != sides[1][name].read_bytes():
            of_file = [Difference(f"{part}/{name}:", "(other bytes)", "(other bytes)")]
        found += of_file
    return found


def _files(folder: Path, only: Sequence[str] | None) -> dict[str, Path]:
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    chosen = {path: file for path, file in paths.items() if only is None or path.parts[0] in only}
    return {str(path): file for path, file in chosen.items() if not path.parts[0].startswith(".")}


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else path.read_text()


def _differences(where: str, before: Any, after: Any) -> Iterator[Difference]:
    if isinstance(before, list) and isinstance(after, list):
        before, after = (dict(enumerate(side)) for side in (before, after))
    if isinstance(before, dict) and isinstance(after, dict):
        place = where if where.endswith(":") else f"{where}."
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _differences(f"{place}{key}", before.get(key, _NOTHING), after.get(key, _NOTHING))
        if [key for key in before if key in after] != [key for key in after if key in before]:
            yield Difference(f"{place}(order)", ", ".join(map(str, before)), ", ".join(map(str, after)))
    elif isinstance(before, str) and isinstance(after, str) and before != after and "\n" in before + after:
        yield from _of_texts(where, before.splitlines(), after.splitlines())
    elif isinstance(before, str) and before == after and before.startswith(FAILED):
        yield Difference(where, before, after)
    elif _text(before) != _text(after):  # as JSON: 1 is not 1.0, -0.0 is not 0.0, and NaN is NaN
        yield Difference(where, _text(before), _text(after))


def _of_texts(where: str, before: list[str], after: list[str]) -> Iterator[Difference]:
    place = where if where.endswith(":") else f"{where}:"
    for kind, first, last, begin, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            one, other = ("\n".join(lines) or "(nothing)" for lines in (before[first:last], after[begin:end]))
            yield Difference(f"{place}{first + 1}", one, other)


def _text(value: Any) -> str:
    return "(nothing)" if value is _NOTHING else json.dumps(value, default=str)


def _short(text: str) -> str:
    lines = text.splitlines()
    return " | ".join(line.strip() for line in lines[:4])[:300] + (" ..." if len(lines) > 4 or len(text) > 300 else "")


def read_allowed(path: Path) -> dict[str, str]:
    """Reads intended differences: tables `[[allow]]` with `where`, a place or a shell pattern of places, and `reason`.

    Raises:
        SystemExit: The file is not of this form.
    """
    entries = tomllib.loads(path.read_text()).get("allow", [])
    for entry in entries:
        if entry.keys() != {"where", "reason"} or not all(str(value).strip() for value in entry.values()):
            raise SystemExit(f"{path}: every [[allow]] needs `where` and `reason`, and nothing else (got {entry})")
    return {entry["where"]: entry["reason"] for entry in entries}


def sort_out(found: Sequence[Difference], allowed: Mapping[str, str]) -> tuple[list[Difference], list[str]]:
    """The differences that nothing allows, and the patterns that allow none of them."""
    left = [one for one in found if not any(_allows(pattern, one) for pattern in allowed)]
    return left, [pattern for pattern in allowed if not any(_allows(pattern, one) for one in found)]


def _allows(pattern: str, found: Difference) -> bool:
    return found.where == pattern or fnmatchcase(found.where, pattern)  # in a pattern, [fedavg] is one character
