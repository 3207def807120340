"""Shakespeare: prediction of the next character, with one natural client per speaking role.

A client is a (play, role), named as in LEAF. Roles with at most two lines are dropped; the lines of a role are joined
by single spaces. (LEAF: see `rayfl.data.sources.next_character`.)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.files import read_file
from rayfl.data.formats.leaf import find_leaf, read_users
from rayfl.data.formats.parquet import only_parquet, read_table
from rayfl.data.generated import plays as generated_plays
from rayfl.data.sources.next_character import LENGTH, Role, cropped, encoded, roles_dataset, split
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream

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
            for role, spoken in speeches.items():
                roles.setdefault((title, role), []).extend(spoken)
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
    speeches: dict[str, list[str]] = defaultdict(list)
    role: str | None = None
    for line in lines:
        if begun := _SPEECH[flush_left].match(line):
            role = begun[1].upper()
            if flush_left and role.startswith("ACT "):
                role = None
            else:
                speeches[role].append(begun[2])
        elif role is not None and (continued := _CONTINUED[flush_left].match(line)):
            if flush_left and line.startswith("<"):
                role = None
            else:
                speeches[role].append(continued[1])
    return speeches


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


_GUTENBERG = ("100.txt", "raw_data.txt")
_TRAIN_SHARE = 0.9


def load(
    source: Source,
    data_dir: Path,
    seed: int,
    clients: int | None = None,
    train_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
    crop: Annotated[int, Field(ge=5)] | None = None,
) -> Dataset:
    """Reads Shakespeare with all roles that are long enough, or generates plays instead.

    Looks in `data_dir`/shakespeare for JSON of LEAF (train/ and test/, or data/ with both), then for the complete works
    from Project Gutenberg (1994) as 100.txt or raw_data.txt, then for one Parquet file shakespeare*.parquet with one
    row per role. See `rayfl.data.sources.shakespeare` for the parsing and `rayfl.data.sources.next_character`
    for the windows.

    Roles without a training window, or without a test window after the gap, are dropped. At a share of 0.9, a role
    needs about 880 characters, which may explain why CyclicFL counts 660 clients and LEAF 1129 roles.

    Args:
        source: "files" reads the files or fails; "generated" makes `clients` roles (100 if None); "auto" reads the
            files if it finds any and otherwise generates.
        train_share: Share of the windows of a role, in order; 0.9 by default, as the counts of CyclicFL suggest; the
            command of LEAF uses 0.8. Not allowed for JSON of LEAF, which is already split.
        crop: Number of consecutive training windows per role, with a fifth as many test windows, at random positions;
            drops roles that do not have more of both. The code of FedDyn uses 2000. By default, all windows.

    Returns:
        x windows [n, 80] uint8 of one text, y [n] uint8 in 0..79, natural clients in the order of sorted names.

    Raises:
        ScenarioError: A share is given for data that is already split.
        DataError: `source` is "files" and there are none, a file is damaged (named), or no role is long enough.
    """
    share = _TRAIN_SHARE if train_share is None else train_share
    folder = data_dir / "shakespeare"
    return files_or_generated(
        source,
        title="Shakespeare",
        kind="text",
        folders=[folder],
        looked_for=(
            "train/*.json with test/*.json, the same under data/, 100.txt, raw_data.txt and shakespeare*.parquet"
        ),
        get=(
            f"get it from www.gutenberg.org/files/100/old/1994-01-100.zip, with 100.txt unpacked in {folder}, or copy "
            "the output of LEAF's data/shakespeare/preprocess.sh to that folder"
        ),
        read=lambda: _read(folder, share, train_share is not None, crop, seed),
        generate=lambda: _dataset(*_generated(seed, clients, share, crop), crop, seed),
    )


def _dataset(roles: list[Role], provenance: Provenance, crop: int | None, seed: int) -> Dataset:
    if crop is not None:
        streams = (stream(seed, "select", number) for number in range(len(roles)))
        candidates = (cropped(role, crop, rng) for role, rng in zip(roles, streams, strict=True))
        roles = [role for role in candidates if role is not None]
    return roles_dataset("shakespeare", roles, "choose a smaller data.options.crop or train_share", provenance)


def _read(folder: Path, share: float, share_given: bool, crop: int | None, seed: int) -> Dataset | None:
    leaf = find_leaf(folder)
    if leaf is not None:
        if share_given:
            raise ScenarioError(f"data.options.train_share: LEAF's files in {leaf} are already split; leave it out")
        return _dataset(*_from_leaf(leaf), crop, seed)
    gutenberg = next((folder / name for name in _GUTENBERG if (folder / name).exists()), None)
    file = gutenberg or only_parquet(folder, "shakespeare")
    if file is None:
        return None
    content, digest = read_file(file)
    texts = read_gutenberg(file, content) if gutenberg else read_parquet(file, content)
    what = "Project Gutenberg's edition as LEAF parses it" if gutenberg else f"{file.name}, not LEAF's edition"
    provenance = Provenance(
        "files",
        f"Shakespeare, {what}; split in order, {share:g} for training; {_WINDOWS}",
        (digest,),
    )
    return _dataset(_split(texts, share), provenance, crop, seed)


_WINDOWS = f"windows of {LENGTH} characters"


def _split(texts: Mapping[str, str], share: float) -> list[Role]:
    return [split(name, text, share) for name, text in texts.items()]


def _from_leaf(folder: Path) -> tuple[list[Role], Provenance]:
    users = read_users(folder, leaf_windows)
    roles = []
    for name, (text, train), (test_text, test) in zip(users.names, users.train, users.test, strict=True):
        roles.append(Role(name, np.concatenate([text, test_text]), train, len(text) + test))
    return roles, Provenance("files", f"Shakespeare, LEAF's files and split; {_WINDOWS}", users.files)


def _generated(seed: int, clients: int | None, share: float, crop: int | None) -> tuple[list[Role], Provenance]:
    wanted = crop or 0
    # Long enough that no role is dropped, for any options.
    shortest = 2 * LENGTH + int(max((wanted + 1) / share, (wanted / 5 + LENGTH + 1) / (1 - share)))
    number = generated_plays.DEFAULT_ROLES if clients is None else clients
    description = (
        f"Sentences of a small grammar, {number} roles, seed {seed}, format {generated_plays.FORMAT}; split in order, "
        f"{share:g} for training; {_WINDOWS}"
    )
    return _split(generated_plays.generate(seed, number, shortest), share), Provenance("generated", description)
