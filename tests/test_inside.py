"""A path that a file names must lie inside its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.errors import DataError
from rayfl.files import inside, relative

OUTSIDE = [
    "", ".", "..", "../x", "a/../../x", "a/..", "/etc/passwd", "//x", "\\x", "..\\x", "C:x", "C:\\x", "a/", "a/.",
    "a\0b", "\ud800", None, 3, ["x"],
]  # fmt: skip


@pytest.mark.parametrize("place", OUTSIDE)
def test_a_place_outside_is_named_with_the_file_that_names_it(place: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^list\.csv: .* is not a place inside its folder; get the file again"):
        inside(tmp_path, place, "list.csv", DataError)
    with pytest.raises(DataError, match="is not a place inside its folder"):
        relative(place, "list.csv", DataError)


@pytest.mark.parametrize("place", ["x", "a/x", "a/b.c/x y", ".x", "…/ü", "a..b/x", "a//x", "./x"])
def test_a_place_inside_is_its_path(place: str, tmp_path: Path) -> None:
    assert inside(tmp_path, place, "list.csv", DataError) == tmp_path / place


def test_a_link_out_of_the_folder_is_refused_and_a_linked_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "out").symlink_to(tmp_path)
    (tmp_path / "states" / "loop").symlink_to(tmp_path / "states" / "loop")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "states")
    for place in ("out", "out/x"):
        with pytest.raises(DataError, match="by a symbolic link out of"):
            inside(tmp_path / "states", place, "list.csv", DataError)
    assert inside(tmp_path / "elsewhere", "ab/x", "list.csv", DataError) == tmp_path / "elsewhere" / "ab" / "x"


@given(st.text(st.sampled_from("a./\\C:\0 "), max_size=12))
def test_whatever_passes_lies_inside(place: str) -> None:
    """Compared with what the operating system makes of the path, by the standard library alone."""
    try:
        relative(place, "list.csv", DataError)
    except DataError:
        return
    assert os.path.normpath(os.path.join("/root/folder", place)).startswith("/root/folder/")  # noqa: PTH118
