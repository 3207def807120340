"""Next-character prediction on any text, such as Penn Treebank to pre-train a network for Shakespeare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.formats.digested import FileDigest, read_file
from rayfl.data.formats.roles import LENGTH, VOCABULARY, encoded
from rayfl.data.inputs import TextWindows
from rayfl.errors import DataError, ScenarioError

CLASSES = len(VOCABULARY)


def load(
    source: Literal["auto", "files", "generated"],
    path: Path,
    test_path: Path | None = None,
    train_share: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> Dataset:
    """Reads windows of 80 characters of a text, each with the next character, in the order of the text.

    The characters are the 80 of Shakespeare (`rayfl.data.formats.roles`), upper and lower case; every other character
    becomes a space. Penn Treebank: path = "ptb.train.txt", test_path = "ptb.test.txt".

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
    text, digest = _read(path)
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
        other, digest = _read(test_path)
        files.append(digest)
        train, test = windows_of(text, 0, windows), windows_of(other, 0, len(other) - LENGTH)
        how = f"tested on {test_path.name}"
    description = f"{path.name}, {len(text)} characters from the {CLASSES} of Shakespeare; {how}"
    provenance = Provenance("files", f"{description}; windows of {LENGTH} characters", tuple(files))
    return Dataset("text_files", train, test, CLASSES, provenance)


def _read(file: Path) -> tuple[np.ndarray, FileDigest]:
    content, digest = read_file(file)
    try:
        text = encoded(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text ({error})") from error
    if len(text) <= LENGTH:
        raise DataError(f"{file}: has {len(text)} characters; a window and its next character need {LENGTH + 1}")
    return text, digest


def windows_of(text: np.ndarray, first: int, end: int) -> Samples:
    """The windows of a text [m] uint8 that start at first, first + 1, ..., end - 1, each with its next character."""
    starts = np.arange(first, max(first, end), dtype=np.int32 if len(text) < 2**31 else np.int64)
    return Samples(TextWindows(text, starts, LENGTH), text[starts + LENGTH])
