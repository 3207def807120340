"""The table of known files agrees with the sources that read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfl.data import data_sources
from rayfl.data.files import KNOWN
from rayfl.data.named_functions import SourceCall
from rayfl.errors import DataError


def call(name: str, data_dir: Path, source: str = "files") -> object:
    arguments = {"source": source, "data_dir": data_dir, "cache_dir": data_dir, "seed": 0, "clients": 3}
    return SourceCall(name, {"size": 8} if name == "imagenet" else {}, arguments)()


@pytest.mark.parametrize("name", KNOWN)
def test_a_source_finds_no_files_where_the_table_finds_none(name: str, tmp_path: Path) -> None:
    assert name in data_sources
    assert KNOWN[name].found(tmp_path) is None
    with pytest.raises(DataError) as error:
        call(name, tmp_path)
    said = str(error.value)
    assert "not found: looked in" in said or "no ImageNet-1K" in said
    assert KNOWN[name].patterns[0].partition("/")[0] in said


@pytest.mark.parametrize("name", KNOWN)
def test_a_source_tries_to_read_what_the_table_finds(name: str, tmp_path: Path) -> None:
    """An empty file or folder is enough; the source then fails on its content."""
    stars = {"fashion_mnist": "", "inaturalist": "geo_3k"}
    path = tmp_path / KNOWN[name].patterns[0].replace("*", stars.get(name, "x"))
    path.parent.mkdir(parents=True)
    path.mkdir() if not path.suffix and "idx3" not in path.name else path.write_bytes(b"")
    assert KNOWN[name].found(tmp_path) == path
    with pytest.raises(Exception) as error:  # noqa: PT011 - each format says in its own way what is wrong
        call(name, tmp_path)
    assert "not found: looked in" not in str(error.value)
