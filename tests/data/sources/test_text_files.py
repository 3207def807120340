"""Texts as windows of the characters of Shakespeare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data.sources.next_character import VOCABULARY
from rayfl.data.sources.next_character import load_text_files as load
from rayfl.errors import DataError, ScenarioError

TEXT = " mr. <unk> is Chairman of $ N N.V. \n" * 10


def written(folder: Path, name: str, text: str = TEXT) -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def as_text(symbols: np.ndarray) -> str:
    return "".join(VOCABULARY[symbol] for symbol in symbols)


def test_windows_are_followed_by_their_label_and_unknown_characters_are_spaces(tmp_path: Path) -> None:
    data = load("files", written(tmp_path, "ptb.train.txt"), written(tmp_path, "ptb.test.txt", TEXT.upper()))
    for part, text in ((data.train, TEXT), (data.test, TEXT.upper())):
        known = "".join(character if character in VOCABULARY else " " for character in text)
        assert len(part) == len(text) - 80
        for row in (0, 17, len(part) - 1):
            assert as_text(part.x[np.array([row])][0]) == known[row : row + 80]
            assert VOCABULARY[part.y[row]] == known[row + 80]
    assert data.num_classes == 80
    assert data.natural is None
    assert [Path(file).name for file, _ in data.provenance.files] == ["ptb.train.txt", "ptb.test.txt"]


def test_a_byte_order_mark_is_no_character(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain.txt", tmp_path / "marked.txt"
    plain.write_text(TEXT, encoding="utf-8")
    marked.write_text(TEXT, encoding="utf-8-sig")
    texts = [load("auto", file, train_share=0.5).train.x.text for file in (plain, marked)]
    assert np.array_equal(*texts)


def test_line_ends_are_one_character_however_they_are_written(tmp_path: Path) -> None:
    unix, windows = tmp_path / "unix.txt", tmp_path / "windows.txt"
    unix.write_bytes(TEXT.encode())
    windows.write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert np.array_equal(*(load("auto", file, train_share=0.5).train.x.text for file in (unix, windows)))


def test_one_text_is_split_in_order_without_overlap(tmp_path: Path) -> None:
    data = load("auto", written(tmp_path, "a.txt"), train_share=0.5)
    windows = len(TEXT) - 80
    assert (len(data.train), len(data.test)) == (windows // 2, windows - windows // 2 - 79)
    seen = range(windows // 2 + 80)
    assert data.test.x.starts[0] == len(seen) - 1  # the last character seen was a label alone


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("none.txt", {}, DataError, r"none\.txt"),
        ("short.txt", {}, DataError, r"short\.txt: has 80 characters; a window and its next character need 81"),
        ("latin.txt", {}, DataError, r"latin\.txt: is not UTF-8 text"),
        ("a.txt", {"train_share": 0.99}, DataError, r"a\.txt: has too little text for .* after a train_share of 0\.99"),
        ("a.txt", {"source": "generated"}, ScenarioError, r"'text_files' has nothing to generate"),
        ("a.txt", {"test_path": "a.txt", "train_share": 0.5}, ScenarioError, r"test_path names the test text"),
    ],
)
def test_files_that_cannot_be_read_raise(
    name: str, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    written(tmp_path, "a.txt")
    written(tmp_path, "short.txt", "a" * 80)
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1") * 100)
    if "test_path" in options:
        options = options | {"test_path": tmp_path / options["test_path"]}
    arguments: dict[str, Any] = {"source": "files", "path": tmp_path / name} | options
    with pytest.raises(error, match=message):
        load(**arguments)
