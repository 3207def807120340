"""Shakespeare: prediction of the next character, with one natural client per speaking role."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.digested import read_file
from rayfl.data.formats.leaf_json import find_leaf, read_users
from rayfl.data.formats.parquet import only_parquet
from rayfl.data.formats.play_texts import leaf_windows, read_gutenberg, read_parquet
from rayfl.data.formats.roles import LENGTH, Role, cropped, roles_dataset, split
from rayfl.data.generated import plays as generated_plays
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import ScenarioError
from rayfl.streams import stream

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
    row per role. See `rayfl.data.formats.play_texts` for the parsing and `rayfl.data.formats.roles` for the windows.

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
