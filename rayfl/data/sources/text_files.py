"""Any text: the next of Shakespeare's 80 characters, such as Penn Treebank to pre-train a network for Shakespeare."""

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
    """Windows of 80 characters of a text, each with the character that follows it, in the order of the text.

    Characters are those of Shakespeare (`rayfl.data.formats.roles`), in capitals and small letters; every other one
    becomes the space, as there. Penn Treebank: path = "ptb.train.txt", test_path = "ptb.test.txt".

    Args:
        path: Of a text in UTF-8.
        test_path: Of another one, to test on.
        train_share: Of the windows of `path`, in order, where there is no other text to test on; 0.9 by default. The 79
            windows after them, which overlap the last one, are left out.

    Returns:
        x windows [n, 80] uint8 of one text, y [n] uint8 in 0..79; no clients of its own.

    Raises:
        ScenarioError: A share beside another text to test on, or `source` "generated".
        DataError: A file that is not there, is no UTF-8, or is too short (named).
    """
    if source == "generated":
        raise ScenarioError("data.source: 'text_files' has nothing to generate; choose 'auto' or 'files'")
    if test_path is not None and train_share is not None:
        raise ScenarioError("data.options.train_share: data.options.test_path is what is tested on; leave one of them")
    text, digest = _read(path)
    files, windows = [digest], len(text) - LENGTH
    if test_path is None:
        share = 0.9 if train_share is None else train_share
        first = max(1, int(share * windows))
        train, test = windows_of(text, 0, first), windows_of(text, first + LENGTH - 1, windows)
        if not len(test):
            raise DataError(f"{path}: has too little text for test windows after {share:g} of it; choose another share")
        how = f"split in order, {share:g} for training"
    else:
        other, digest = _read(test_path)
        files.append(digest)
        train, test = windows_of(text, 0, windows), windows_of(other, 0, len(other) - LENGTH)
        how = f"tested on {test_path.name}"
    description = f"{path.name}, {len(text)} characters in Shakespeare's {CLASSES}; {how}"
    provenance = Provenance("files", f"{description}; windows of {LENGTH} characters", tuple(files))
    return Dataset("text_files", train, test, CLASSES, provenance)


def _read(file: Path) -> tuple[np.ndarray, FileDigest]:
    content, digest = read_file(file)
    try:
        text = encoded(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is no text in UTF-8 ({error})") from error
    if len(text) <= LENGTH:
        raise DataError(f"{file}: has {len(text)} characters; a window and what follows it take {LENGTH + 1}")
    return text, digest


def windows_of(text: np.ndarray, first: int, end: int) -> Samples:
    """The windows of a text [m] uint8 that begin at first, first + 1, ..., end - 1, each with what follows it."""
    starts = np.arange(first, max(first, end), dtype=np.int32 if len(text) < 2**31 else np.int64)
    return Samples(TextWindows(text, starts, LENGTH), text[starts + LENGTH])
