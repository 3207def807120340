"""Newspaper text of Penn Treebank by character, to pre-train a network for Shakespeare; no natural clients.

Marcus et al., "Building a Large Annotated Corpus of English: The Penn Treebank", Computational Linguistics 1993; in
lower case and with <unk> for rare words, as prepared by Mikolov.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rayfl.data.dataset import Dataset, Provenance
from rayfl.data.formats.roles import LENGTH, encoded
from rayfl.data.generated import plays
from rayfl.data.sources import text_files
from rayfl.data.sources.stand_in import Source, files_or_generated

_TRAIN, _TEST = "ptb.train.txt", "ptb.test.txt"
_ROLES, _SHORTEST = 10, 4000


def load(source: Source, data_dir: Path, seed: int) -> Dataset:
    """Reads windows of Penn Treebank like `text_files`, or generates plays instead.

    Looks in `data_dir`/penn_treebank for ptb.train.txt and ptb.test.txt.

    Args:
        source: "files" reads the files or fails; "generated" makes plays in lower case, different from the stand-in for
            Shakespeare; "auto" reads the files if it finds any and otherwise generates.

    Returns:
        x windows [n, 80] uint8 of the 80 characters of Shakespeare, y [n] uint8, the next character.

    Raises:
        DataError: `source` is "files" and there are none, or a file is not UTF-8 or too short (named).
    """
    folder = data_dir / "penn_treebank"
    return files_or_generated(
        source,
        title="Penn Treebank",
        kind="text",
        folders=[folder],
        looked_for=f"{_TRAIN} and {_TEST}",
        get=f"get it from Mikolov's simple-examples.tgz, data/{_TRAIN} and data/{_TEST}, in {folder}",
        read=lambda: _read(folder),
        generate=lambda: _generated(seed),
    )


def _read(folder: Path) -> Dataset | None:
    if not (folder / _TRAIN).exists():
        return None
    return replace(text_files.load("files", folder / _TRAIN, folder / _TEST), name="penn_treebank")


def _generated(seed: int) -> Dataset:
    text = encoded(" ".join(plays.generate(seed + 1, _ROLES, _SHORTEST).values()).lower())
    windows = len(text) - LENGTH
    first = windows * 9 // 10
    train, test = text_files.windows_of(text, 0, first), text_files.windows_of(text, first + LENGTH - 1, windows)
    description = f"Sentences of a small grammar in lower case, {len(text)} characters, seed {seed + 1}"
    return Dataset("penn_treebank", train, test, text_files.CLASSES, Provenance("generated", description))
