"""Reads the plays of Shakespeare by speaking role.

A client is a (play, role), named as in LEAF. Roles with at most two lines are dropped; the lines of a role are joined
by single spaces. (LEAF: see `rayfl.data.formats.roles`.)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayfl.data.formats.parquet import read_table
from rayfl.data.formats.roles import LENGTH, encoded
from rayfl.errors import DataError

_SCHEMA = pa.schema([("play", pa.string()), ("role", pa.string()), ("text", pa.string())])


def read_parquet(file: Path, content: bytes) -> dict[str, str]:
    """Text by role, from columns `play`, `role` and `text`: one row per role, with its lines joined by newlines.

    Raises:
        DataError: The file is damaged or lacks these columns; names it.
    """
    table = read_table(file, _SCHEMA, content)
    rows = zip(*(table[column].to_pylist() for column in _SCHEMA.names), strict=True)
    return _joined({(play, role): text.split("\n") for play, role, text in rows})


def read_gutenberg(file: Path, content: bytes) -> dict[str, str]:
    """Text by role, from Project Gutenberg's complete works (etext 100 of January 1994), parsed as LEAF does.

    Skips everything before the second "by William Shakespeare" (the sonnets and the first play, All's Well That Ends
    Well), everything from line 124198 (A Lover's Complaint), and lines outside a speech. A speech starts with two
    spaces, a name and a full stop; lines indented by four spaces or more continue it. In The Comedy of Errors, which
    is not indented, every line except headings and notices continues it.

    Raises:
        DataError: The file has no such speeches, because it is another edition; names it.
    """
    lines = content.decode("utf-8", "replace").splitlines()[1:]
    titles = [number for number, line in enumerate(lines) if _AUTHOR in line]
    roles: dict[tuple[str, str], list[str]] = {}
    for number, next_title in pairwise([*titles[1:], len(lines)]):
        title = next((line.strip() for line in lines[max(0, number - 2) : max(0, number - 8) : -1] if line.strip()), "")
        speeches = _speeches(lines[number + 1 : min(next_title, _END_OF_PLAYS + 1)], title == "THE COMEDY OF ERRORS")
        if len(speeches) > 1:
            for role, said in speeches.items():
                roles.setdefault((title, role), []).extend(said)
    if not roles:
        raise DataError(
            f"{file}: has no speeches in the form of Project Gutenberg's edition of 1994, which LEAF uses; get "
            "www.gutenberg.org/files/100/old/1994-01-100.zip"
        )
    return _joined(roles)


_AUTHOR = "by William Shakespeare"
_END_OF_PLAYS = 124195
"""Number of a line, counted from 0 without the first line of the file."""

_SPEECH = {False: re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)"), True: re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")}
_CONTINUED = {False: re.compile(r"    (.*)"), True: re.compile(r"(.*)")}
"""By whether the play is flush left."""


def _speeches(lines: Sequence[str], flush_left: bool) -> dict[str, list[str]]:
    said: dict[str, list[str]] = defaultdict(list)
    role: str | None = None
    for line in lines:
        if begun := _SPEECH[flush_left].match(line):
            role = begun[1].upper()
            if flush_left and role.startswith("ACT "):
                role = None
            else:
                said[role].append(begun[2])
        elif role is not None and (continued := _CONTINUED[flush_left].match(line)):
            if flush_left and line.startswith("<"):
                role = None
            else:
                said[role].append(continued[1])
    return said


def _joined(roles: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, str]:
    texts: dict[str, str] = defaultdict(str)
    for (play, role), lines in roles.items():
        if len(lines) > 2:
            name = re.sub(r"\W+", "_", f"{play}_{role.upper()}")
            texts[name] += "".join(f"{line} " for line in lines)
    return {name: re.sub(" {2,}", " ", texts[name]) for name in sorted(texts)}


def leaf_windows(file: Path, user: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """One user of LEAF's Shakespeare: a text [m] uint8 that contains its windows, and the start of each, [n] int64.

    Consecutive windows in the file overlap in the text, as they did before LEAF cut them out.

    Raises:
        DataError: Windows do not have 80 characters, or labels not one; names file and user.
    """
    try:
        windows, targets = list(map(str, data["x"])), list(map(str, data["y"]))
    except (KeyError, TypeError) as error:
        raise DataError(f"{file}: user '{user}' needs 'x' with windows of text, and 'y'") from error
    if len(windows) != len(targets):
        raise DataError(f"{file}: user '{user}' has {len(windows)} windows but {len(targets)} labels")
    if set(map(len, windows)) - {LENGTH} or set(map(len, targets)) - {1}:
        raise DataError(f"{file}: user '{user}' needs {LENGTH} characters per window and one per label")
    x, y = encoded("".join(windows)).reshape(-1, LENGTH), encoded("".join(targets))
    follows = (x[1:, :-1] == x[:-1, 1:]).all(1) & (x[1:, -1] == y[:-1])
    first = np.ones(len(x), bool)
    first[1:] = ~follows
    starts = np.arange(len(x)) + LENGTH * (np.cumsum(first) - 1)
    text = np.empty(len(x) + LENGTH * int(first.sum()), np.uint8)
    text[starts + LENGTH] = y
    text[starts[first][:, None] + np.arange(LENGTH)] = x[first]
    return text, starts
