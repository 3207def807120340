"""Penn Treebank: its files, and the stand-in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.data.sources import next_character as penn_treebank
from rayfl.data.sources import shakespeare
from rayfl.data.sources.next_character import VOCABULARY
from rayfl.errors import DataError

TEXT = " mr. <unk> is chairman of n.v. \n" * 10


def as_text(symbols: np.ndarray) -> str:
    return "".join(VOCABULARY[symbol] for symbol in symbols)


def test_windows_are_those_of_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "penn_treebank"
    folder.mkdir()
    (folder / "ptb.train.txt").write_text(TEXT)
    with pytest.raises(DataError, match=r"ptb\.test\.txt: cannot be read"):
        penn_treebank.load_penn_treebank("files", tmp_path, 0)
    (folder / "ptb.test.txt").write_text(TEXT[5:])
    data = penn_treebank.load_penn_treebank("files", tmp_path, 0)
    assert (data.name, len(data.train), len(data.test), data.num_classes) == ("penn_treebank", 240, 235, 80)
    known = TEXT.replace("<", " ")
    assert as_text(data.train.x[np.array([3])][0]) == known[3:83]
    assert VOCABULARY[data.train.y[3]] == known[83]


def test_the_stand_in_differs_from_the_one_for_shakespeare(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Penn Treebank not found: looked in .*penn_treebank for ptb\.train\.txt"):
        penn_treebank.load_penn_treebank("files", tmp_path, 0)
    made, again = (
        penn_treebank.load_penn_treebank("auto", tmp_path, 0),
        penn_treebank.load_penn_treebank("generated", tmp_path, 0),
    )
    text, theirs = (as_text(data.train.x.text) for data in (made, shakespeare.load("generated", tmp_path, 0, 10)))
    assert np.array_equal(made.train.x.text, again.train.x.text)
    assert text == text.lower()
    assert text[1000:1200] not in theirs.lower()
    assert made.test.x.starts[0] == made.train.x.starts[-1] + 80
    assert "Stand-in for Penn Treebank (generated text), not real data" in made.provenance.description
