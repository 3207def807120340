"""`{run-files}` and `{columns} metrics`: the contents of a run folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from sphinx.application import Sphinx

from extensions import docstrings, prose
from extensions.generated import directive
from rayfl.engine import columns as column_meanings
from rayfl.engine.columns import CLIENTS_MEANINGS, METRICS_MEANINGS, REPORTED_MEANINGS, Meaning
from rayfl.runs import folder as file_meanings
from rayfl.runs.status import Status

TABLES = {"metrics": METRICS_MEANINGS, "reported": REPORTED_MEANINGS, "clients": CLIENTS_MEANINGS}


def files(words: list[str]) -> str:
    """Returns the files as a definition list."""
    return "\n\n".join(f"`{name}`\n: {text}" for name, text in file_meanings.FILES.items())


def columns(words: list[str]) -> str:
    """Returns the columns of the named table."""
    (table,) = words
    return as_list(TABLES[table])


def status(words: list[str]) -> str:
    """Returns the keys of status.json."""
    return prose.as_markdown(docstrings.of(Status).body)


def as_list(meanings: Iterable[Meaning]) -> str:
    """Formats columns as a definition list."""
    entries = []
    for meaning in meanings:
        names = ", ".join(f"`{name}`" for name in meaning.name.split(", "))
        unit = f" [{meaning.unit}]" if meaning.unit else ""
        only = f" Only {prose.one_line(meaning.only)}." if meaning.only else ""
        entries.append(f"{names}{unit}\n: {prose.one_line(meaning.text)}{only}")
    return "\n\n".join(entries)


def _modules(words: list[str]) -> list[str]:
    return [str(column_meanings.__file__), str(file_meanings.__file__), str(sys.modules[Status.__module__].__file__)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directives."""
    for name, text in (("run-files", files), ("columns", columns), ("status-keys", status)):
        app.add_directive(name, directive(text, _modules))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
