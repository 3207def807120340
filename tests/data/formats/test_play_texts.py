"""Shakespeare's roles from Parquet, from Project Gutenberg's text and from LEAF's windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.data.sources.next_character import VOCABULARY, encoded
from rayfl.data.sources.shakespeare import leaf_windows, read_gutenberg, read_parquet
from rayfl.errors import DataError

GUTENBERG = """The first line
1609
by William Shakespeare
  NOBODY. the sonnets are skipped
    and so is the first play
1602

THE TRAGEDY


by William Shakespeare

ACT I. Scene 1
  BERN. Who's there?
  Fran. Nay, answer   me.
    Stand and unfold
      yourself.
outside a speech
  BERN. Long live the king!
    He.
  MUTE. One line.
    And another.
  FRAN. Bernardo.
1593

THE COMEDY OF ERRORS

by William Shakespeare

ACT I. Hall
AEGEON. Proceed, Solinus,
to procure my fall,
<<THIS NOTICE
is not said
DUKE. Merchant of Syracuse,
plead no more.
I am not partial
ACT II. Market
to nobody
AEGEON. And by the doom.
<<A NOTICE
1600

A PLAY OF ONE

by William Shakespeare
  SOLO. One.
    Two.
    Three.
"""


def _parquet(tmp_path: Path, columns: dict[str, list[str]]) -> tuple[Path, bytes]:
    file = tmp_path / "shakespeare.parquet"
    pq.write_table(pa.table(columns), file)
    return file, file.read_bytes()


def test_gutenberg_text_is_parsed_as_leaf_does() -> None:
    assert read_gutenberg(Path("100.txt"), GUTENBERG.encode()) == {
        "THE_COMEDY_OF_ERRORS_AEGEON": "Proceed, Solinus, to procure my fall, And by the doom. ",
        "THE_COMEDY_OF_ERRORS_DUKE": "Merchant of Syracuse, plead no more. I am not partial ",
        "THE_TRAGEDY_BERN": "Who's there? Long live the king! He. ",
        "THE_TRAGEDY_FRAN": "Nay, answer me. Stand and unfold yourself. Bernardo. ",
    }


def test_gutenberg_text_ends_with_the_plays() -> None:
    lines = GUTENBERG.splitlines()
    begun = lines[: lines.index("  FRAN. Bernardo.") + 1]
    rest = ["    The last line of the plays.", "    A poem."]
    text = "\n".join([*begun, *[""] * (124196 - len(begun)), *rest])
    said = read_gutenberg(Path("100.txt"), text.encode())
    assert (
        said["THE_TRAGEDY_FRAN"] == "Nay, answer me. Stand and unfold yourself. Bernardo. The last line of the plays. "
    )


@pytest.mark.parametrize("text", ["", "no plays", GUTENBERG.replace("  ", "").replace("OF ERRORS", "")])
def test_another_edition_raises(text: str) -> None:
    with pytest.raises(DataError, match=r"x\.txt: has no speeches in the form of Project Gutenberg's edition of 1994"):
        read_gutenberg(Path("x.txt"), text.encode())


def test_roles_of_parquet_are_named_and_joined_as_in_leaf(tmp_path: Path) -> None:
    columns = {
        "play": ["Twelfth Night", "As You Like It", "Twelfth Night"],
        "role": ["Sir Toby", "ROSALIND", "Mute"],
        "text": ["What a plague\nmeans  my niece,\nto take", "a\nb\nc", "one\ntwo"],
    }
    assert read_parquet(*_parquet(tmp_path, columns)) == {
        "As_You_Like_It_ROSALIND": "a b c ",
        "Twelfth_Night_SIR_TOBY": "What a plague means my niece, to take ",
    }


def test_parquet_without_its_columns_is_named(tmp_path: Path) -> None:
    file, content = _parquet(tmp_path, {"play": ["a"], "text": ["b"]})
    with pytest.raises(DataError, match=rf"{file}: has no column 'role'; expected play: string, role: string, text"):
        read_parquet(file, content)


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    file, content = _parquet(tmp_path, {"play": ["a"], "role": ["c"], "text": ["b"]})
    with pytest.raises(DataError, match=rf"{file}: cannot be read as Parquet, truncated or corrupt?"):
        read_parquet(file, content[:-10])


def _windows(text: str) -> dict[str, list[str]]:
    """Cuts windows like LEAF."""
    return {
        "x": [text[i : i + 80] for i in range(len(text) - 80)],
        "y": [text[i + 80] for i in range(len(text) - 80)],
    }


TEXT = "".join(np.random.default_rng(0).choice(list(VOCABULARY), 200))


def test_consecutive_leaf_windows_become_the_text_they_were_cut_from() -> None:
    text, starts = leaf_windows(Path("f"), "u", _windows(TEXT))
    np.testing.assert_array_equal(text, encoded(TEXT))
    np.testing.assert_array_equal(starts, np.arange(120))


def test_leaf_windows_in_any_order_are_kept() -> None:
    windows = _windows(TEXT)
    order = [5, 6, 7, 3, 100, 101, 4, 5]
    given = {key: [values[i] for i in order] for key, values in windows.items()}
    text, starts = leaf_windows(Path("f"), "u", given)
    assert len(text) == len(order) + 4 * 80
    for start, i in zip(starts, order, strict=True):
        np.testing.assert_array_equal(text[start : start + 81], encoded(windows["x"][i] + windows["y"][i]))


def test_a_leaf_user_without_windows_is_empty() -> None:
    text, starts = leaf_windows(Path("f"), "u", {"x": [], "y": []})
    assert (len(text), len(starts)) == (0, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": ["a" * 80]}, "needs 'x' with windows of text, and 'y'"),
        ([1], "needs 'x' with windows of text, and 'y'"),
        ({"x": ["a" * 80], "y": []}, "has 1 windows but 0 labels"),
        ({"x": ["a" * 79], "y": ["b"]}, "needs 80 characters per window and one per label"),
        ({"x": ["a" * 80], "y": ["bc"]}, "needs 80 characters per window and one per label"),
    ],
)
def test_leaf_users_of_another_form_are_named(data: object, message: str) -> None:
    with pytest.raises(DataError, match=f"f.json: user 'u' {message}"):
        leaf_windows(Path("f.json"), "u", data)
