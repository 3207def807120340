"""The prepare command."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rayfl.data.prepare import main
from tests.data.leaf_files import write_leaf


def test_it_prints_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_leaf(tmp_path / "leaf" / "data")
    out = tmp_path / "sub" / "femnist.parquet"
    assert main(["femnist", str(tmp_path / "leaf"), str(out)]) == 0
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    assert capsys.readouterr().out == f"wrote {out}: 3 writers, 12 train and 6 test images, sha256 {digest}\n"


def test_preparing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for file in files:
        main(["femnist", str(tmp_path), str(file)])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_folder_without_leaf_files_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["femnist", str(tmp_path / "none"), str(tmp_path / "x.parquet")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / 'none'}: has no train/*.json and test/*.json, nor under data/")
    assert not (tmp_path / "x.parquet").exists()


def test_unwritable_target_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_leaf(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["femnist", str(tmp_path), str(tmp_path / "file" / "x.parquet")]) == 2
    assert f"error: {tmp_path / 'file' / 'x.parquet'}: cannot be written" in capsys.readouterr().err
