"""Where data and caches are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfl.data.files import cache_folder, data_folder
from rayfl.errors import DataError


def test_environment_names_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAYFL_DATA", str(tmp_path / "d"))
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "c"))
    assert (data_folder(), cache_folder()) == (tmp_path / "d", tmp_path / "c")


@pytest.mark.parametrize("empty", [True, False])
def test_home_cache_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty: bool) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAYFL_DATA", "RAYFL_CACHE"):
        if empty:
            monkeypatch.setenv(name, "")
        else:
            monkeypatch.delenv(name, raising=False)
    assert data_folder() == tmp_path / ".cache" / "rayfl" / "data"
    assert cache_folder() == tmp_path / ".cache" / "rayfl"


def test_a_folder_that_the_user_names_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAYFL_DATA", str(tmp_path / "elsewhere"))
    assert data_folder(tmp_path) == data_folder(str(tmp_path)) == tmp_path
    (tmp_path / "file").touch()
    for missing in ("gone", "file", "a" * 300):
        with pytest.raises(DataError, match=rf"--data-dir: there is no folder '{tmp_path}/{missing}'"):
            data_folder(tmp_path / missing)
