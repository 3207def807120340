"""Next-character prediction: windows over the text of speaking roles, on any text, and on Penn Treebank.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, and its code: windows of 80 characters,
stride 1; the target is the next character. The windows of a role are split in order, and the 79 windows after the
training part, which share characters with its last window, are omitted.

Newspaper text of Penn Treebank by character serves to pre-train a network for Shakespeare; no natural clients. Marcus
et al., "Building a Large Annotated Corpus of English: The Penn Treebank", Computational Linguistics 1993; in lower case
and with <unk> for rare words, as prepared by Mikolov.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.files import FileDigest, read_file
from rayfl.data.generated import plays
from rayfl.data.inputs import TextWindows
from rayfl.data.sources.stand_in import Source, files_or_generated
from rayfl.errors import DataError, ScenarioError

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 symbols of LEAF; the index of a symbol is its label."""

UNKNOWN = VOCABULARY.index(" ")
"""Replaces every other character. LEAF uses -1, which is not a valid network input."""

LENGTH = 80

_SYMBOLS = np.full(256, UNKNOWN, np.uint8)
_SYMBOLS[[ord(character) for character in VOCABULARY]] = np.arange(len(VOCABULARY))


def encoded(text: str) -> np.ndarray:
    """[len(text)] uint8: index of each character in the vocabulary."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    symbols: np.ndarray = _SYMBOLS[np.where(code_points < 256, code_points, ord(" "))]
    return symbols


@dataclass(frozen=True)
class Role:
    """One speaking role, a natural client.

    Attributes:
        text: [m] uint8, symbols.
        train: [n] integers, starts of its training windows in the text; each has 80 symbols, followed by the target.
        test: [n] integers, likewise for its test windows.
    """

    name: str
    text: np.ndarray
    train: np.ndarray
    test: np.ndarray


def split(name: str, text: str, train_share: float) -> Role:
    """All windows of a text: the first floor(train_share * n), at least one, and those that overlap none of them."""
    symbols = encoded(text)
    windows = max(0, len(symbols) - LENGTH)
    train = min(windows, max(1, int(train_share * windows)))
    return Role(name, symbols, np.arange(train), np.arange(train + LENGTH - 1, windows))


def cropped(role: Role, amount: int, rng: np.random.Generator) -> Role | None:
    """`amount` consecutive training windows and a fifth as many test windows, at random positions; None if too few."""
    if len(role.train) <= amount or len(role.test) <= amount // 5:
        return None
    return replace(role, train=_run(role.train, amount, rng), test=_run(role.test, amount // 5, rng))


def _run(starts: np.ndarray, amount: int, rng: np.random.Generator) -> np.ndarray:
    first = rng.integers(len(starts) - amount)
    return starts[first : first + amount]


def roles_dataset(name: str, roles: Iterable[Role], too_short: str, provenance: Provenance) -> Dataset:
    """Builds a data set from roles with a training and a test window, its natural clients in the order given.

    Raises:
        DataError: There are no such roles; `too_short` says what to change.
    """
    long_enough = [role for role in roles if len(role.train) and len(role.test)]
    if not long_enough:
        raise DataError(f"{name}: no role has enough text for a training window and a test window; {too_short}")
    text = np.concatenate([role.text for role in long_enough])
    offsets = np.cumsum([0, *(len(role.text) for role in long_enough)])
    train, test = [role.train for role in long_enough], [role.test for role in long_enough]
    return Dataset(
        name=name,
        train=_samples(text, offsets, train),
        test=_samples(text, offsets, test),
        num_classes=len(VOCABULARY),
        provenance=provenance,
        natural=NaturalClients(tuple(role.name for role in long_enough), _consecutive(train), _consecutive(test)),
    )


def _samples(text: np.ndarray, offsets: np.ndarray, starts: Sequence[np.ndarray]) -> Samples:
    # 4 bytes per window and 1 per label, since there are as many windows as characters.
    parts = zip(starts, offsets[:-1], strict=True)
    begins = np.concatenate([(part + offset).astype(np.int32) for part, offset in parts])
    return Samples(TextWindows(text, begins, LENGTH), text[begins + LENGTH])


def _consecutive(parts: Sequence[np.ndarray]) -> Shards:
    offsets = np.cumsum([0, *map(len, parts)])
    return Shards(np.arange(offsets[-1]), offsets)


CLASSES = len(VOCABULARY)


def load_text_files(
    source: Literal["auto", "files", "generated"],
    path: Path,
    test_path: Path | None = None,
    train_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> Dataset:
    """Reads windows of 80 characters of a text, each with the next character, in the order of the text.

    The characters are the 80 of Shakespeare (`rayfl.data.sources.next_character`), upper and lower case; every
    other character becomes a space. Penn Treebank: path = "ptb.train.txt", test_path = "ptb.test.txt".

    Args:
        path: Path of a UTF-8 text.
        test_path: Path of another text for testing.
        train_share: Without `test_path`, the share of the windows of `path`, in order; 0.9 by default. The 79 windows
            after these, which overlap the last one, are omitted.

    Returns:
        x windows [n, 80] uint8 of one text, y [n] uint8 in 0..79; no natural clients.

    Raises:
        ScenarioError: A share and a text for testing are both given, or `source` is "generated".
        DataError: A file does not exist, is not UTF-8, or is too short (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'text_files' has nothing to generate; choose 'auto' or 'files'")
    if test_path is not None and train_share is not None:
        raise ScenarioError(
            "data.options.train_share: data.options.test_path names the test text; leave one of them out"
        )
    text, digest = _read_text(path)
    files, windows = [digest], len(text) - LENGTH
    if test_path is None:
        share = 0.9 if train_share is None else train_share
        first = max(1, int(share * windows))
        train, test = windows_of(text, 0, first), windows_of(text, first + LENGTH - 1, windows)
        if not len(test):
            raise DataError(
                f"{path}: has too little text for test windows after a train_share of {share:g}; choose another share"
            )
        how = f"split in order, {share:g} for training"
    else:
        other, digest = _read_text(test_path)
        files.append(digest)
        train, test = windows_of(text, 0, windows), windows_of(other, 0, len(other) - LENGTH)
        how = f"tested on {test_path.name}"
    description = f"{path.name}, {len(text)} characters from the {CLASSES} of Shakespeare; {how}"
    provenance = Provenance("files", f"{description}; windows of {LENGTH} characters", tuple(files))
    return Dataset("text_files", train, test, CLASSES, provenance)


def _read_text(file: Path) -> tuple[np.ndarray, FileDigest]:
    content, digest = read_file(file)
    try:
        text = encoded(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text ({error})") from error
    if len(text) <= LENGTH:
        raise DataError(f"{file}: has {len(text)} characters; a window and its next character need {LENGTH + 1}")
    return text, digest


def windows_of(text: np.ndarray, first: int, end: int) -> Samples:
    """The windows of a text [m] uint8 that start at first, first + 1, ..., end - 1, each with its next character."""
    starts = np.arange(first, max(first, end), dtype=np.int32 if len(text) < 2**31 else np.int64)
    return Samples(TextWindows(text, starts, LENGTH), text[starts + LENGTH])


_TRAIN, _TEST = "ptb.train.txt", "ptb.test.txt"
_ROLES, _SHORTEST = 10, 4000


def load_penn_treebank(source: Source, data_dir: Path, seed: int) -> Dataset:
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
        read=lambda: _read_penn_treebank(folder),
        generate=lambda: _generated(seed),
    )


def _read_penn_treebank(folder: Path) -> Dataset | None:
    if not (folder / _TRAIN).exists():
        return None
    return replace(load_text_files("files", folder / _TRAIN, folder / _TEST), name="penn_treebank")


def _generated(seed: int) -> Dataset:
    text = encoded(" ".join(plays.generate(seed + 1, _ROLES, _SHORTEST).values()).lower())
    windows = len(text) - LENGTH
    first = windows * 9 // 10
    train, test = windows_of(text, 0, first), windows_of(text, first + LENGTH - 1, windows)
    description = f"Sentences of a small grammar in lower case, {len(text)} characters, seed {seed + 1}"
    return Dataset("penn_treebank", train, test, CLASSES, Provenance("generated", description))
