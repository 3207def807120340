"""A node's processes share copies of fragments, which are whole, and of which the least recently used go."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data.prepared import fragments
from rayfl.data.prepared.fragments import FragmentRows
from rayfl.data.prepared.manifest import Manifest, StoredFile
from rayfl.data.prepared.node_cache import NodeCache
from rayfl.errors import DataError, ResourceError
from tests.data.prepared.hosts import ran
from tests.data.prepared.scenes import IMAGES, data, from_disk, prepared, small_fragments, stored
from tests.data.prepared.test_damage import flip, forget
from tests.data.prepared.test_same_bits import batches
from tests.engine.scenes import prepared as planned

pytestmark = pytest.mark.usefixtures(small_fragments.__name__)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of which copies are written."""
    names: list[str] = []
    write = NodeCache._write

    def noted(copy: Path, folder: Path, stored: StoredFile) -> None:
        write(copy, folder, stored)
        names.append(stored.file)

    monkeypatch.setattr(NodeCache, "_write", staticmethod(noted))
    return names


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "node" / "cache"
    monkeypatch.setenv("RAYFL_NODE_CACHE", str(folder))
    forget()
    return folder


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return prepared(data("images"), tmp_path / "it")


def copies(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.copy"))


def read(folder: Path) -> Any:
    forget()
    return batches(stored(from_disk(folder)))


def test_copies_have_the_batches_of_the_folder_and_are_made_once(
    tmp_path: Path, manifest: Manifest, cache: Path, written: list[str]
) -> None:
    before = batches(stored(data("images")))
    assert read(tmp_path / "it") == before
    assert sorted(written) == sorted(file.file for file in manifest.files if file != manifest.index)
    assert len(copies(cache)) == len(written)
    for name in written:
        (tmp_path / "it" / name).unlink()
    assert read(tmp_path / "it") == before
    assert len(copies(cache)) == len(written)


def test_without_a_cache_nothing_is_copied(
    tmp_path: Path, manifest: Manifest, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAYFL_NODE_CACHE", raising=False)
    read(tmp_path / "it")
    assert not written


def test_hosts_of_a_node_have_the_bits_of_hosts_without_a_cache(
    tmp_path: Path, manifest: Manifest, cache: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = {"name": "p", "rounds": 2, "cohort": 5, "local": {"lr": 0.1, "batch_size": 4, "epochs": 1}}
    tables = {"name": "prepared", "options": {"path": str(tmp_path / "it")}, "validation_share": 0.2}
    job = planned(data=tables, model={"name": "mlp", "hidden": [3]}, phases=[phase])
    monkeypatch.delenv("RAYFL_NODE_CACHE")
    whole, _ = ran(job, 1)
    monkeypatch.setenv("RAYFL_NODE_CACHE", str(cache))
    for hosts in (1, 2, 3):
        forget()
        assert ran(job, hosts)[0] == whole
    forget()
    assert ran(job, 2, resumed=True)[0] == whole
    assert len(set(written)) == len(written) > 5


@pytest.mark.parametrize("damage", ["changed", "cut short", "longer"])
def test_a_damaged_copy_is_replaced(
    damage: str, tmp_path: Path, manifest: Manifest, cache: Path, written: list[str]
) -> None:
    before = read(tmp_path / "it")
    written.clear()
    for copy in copies(cache):
        if damage == "changed":
            flip(copy, copy.stat().st_size // 2)
        else:
            os.truncate(copy, copy.stat().st_size + (1 if damage == "longer" else -1))
    assert read(tmp_path / "it") == before
    assert len(written) == len(copies(cache))


def test_a_damaged_source_is_refused_and_leaves_no_copy(tmp_path: Path, manifest: Manifest, cache: Path) -> None:
    source = tmp_path / "it" / "train-00001.arrow"
    flip(source, source.stat().st_size // 2)
    message = rf"^{re.escape(str(source))}: is damaged: bytes from .* have another digest"
    for _ in range(2):
        with pytest.raises(DataError, match=message) as caught:
            read(tmp_path / "it")
        assert "\n" not in str(caught.value)
    assert {file.name for file in cache.iterdir()} == {"lock", *(copy.name for copy in copies(cache))}


def test_processes_that_need_a_copy_at_once_make_it_once(
    tmp_path: Path, manifest: Manifest, cache: Path, written: list[str]
) -> None:
    fragment, found = manifest.sets["train"].fragments[0], list[bytes]()

    def opened() -> None:
        copy = NodeCache(cache, 2**30).opened(tmp_path / "it", fragment, Path.read_bytes)
        assert copy is not None
        found.append(copy)

    threads = [threading.Thread(target=opened) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [fragment.file]
    assert found == [(tmp_path / "it" / fragment.file).read_bytes()] * 8


def test_the_copies_used_longest_ago_go_and_stay_readable_where_they_are_mapped(
    tmp_path: Path, manifest: Manifest, cache: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [*manifest.sets["train"].fragments[:4], manifest.sets["test"].fragments[0]]
    times = iter(range(time.time_ns(), 2**63, 10**9))  # Linux itself sets times of access that are long ago
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    it = NodeCache(cache, sum(sorted(part.bytes for part in parts)[-3:]))

    def opened(number: int) -> np.ndarray | None:
        return it.opened(tmp_path / "it", parts[number], fragments._bytes_of)

    first = opened(0)
    opened(1)
    opened(2)
    opened(1)
    it.used(parts[0])
    opened(3)  # instead of 2
    kept = {it._copy(parts[number]) for number in (0, 1, 3)}
    assert {*copies(cache)} == kept
    opened(4)  # instead of 1
    opened(2)  # instead of 0
    assert {*copies(cache)} == {it._copy(parts[number]) for number in (2, 3, 4)}
    assert first is not None
    assert first.tobytes() == (tmp_path / "it" / parts[0].file).read_bytes()
    assert sum(copy.stat().st_size for copy in copies(cache)) <= it.limit


def test_a_process_says_that_it_uses_what_it_has_mapped(
    tmp_path: Path, manifest: Manifest, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = stored(from_disk(tmp_path / "it")).train.x
    assert isinstance(x, FragmentRows)
    x[np.array([0])]
    copy = NodeCache(cache, 1)._copy(manifest.sets["train"].fragments[0])
    before = copy.stat().st_atime_ns - 10**9
    os.utime(copy, ns=(before, copy.stat().st_mtime_ns))
    x[np.array([0])]
    assert copy.stat().st_atime_ns == before  # it has just said so
    monkeypatch.setattr(fragments, "NOTED_EVERY_S", 0)
    x[np.array([0])]
    assert copy.stat().st_atime_ns > before
    copy.unlink()
    assert np.array_equal(x[np.array([0])][0], IMAGES[stored(data("images")).train.x.rows[0]])


def test_what_a_killed_process_left_is_removed_and_files_above_the_limit_are_not_copied(
    tmp_path: Path, manifest: Manifest, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(parents=True)
    part = manifest.sets["train"].fragments[0]
    (cache / f".{NodeCache(cache, 1)._copy(part).name}.0123").write_text("half of it")
    (cache / "mine.txt").write_text("not of the cache")
    before = read(tmp_path / "it")
    assert {file.suffix for file in cache.iterdir()} == {".copy", ".txt", ""}
    for copy in copies(cache):
        copy.unlink()
    monkeypatch.setenv("RAYFL_NODE_CACHE_GB", str(1 / 2**30))
    assert read(tmp_path / "it") == before
    assert not copies(cache)


@pytest.mark.parametrize(
    ("folder", "limit", "message"),
    [
        ("relative/place", "1", r"^RAYFL_NODE_CACHE: 'relative/place' is relative; name a folder"),
        ("/", "much", r"^RAYFL_NODE_CACHE_GB: 'much' is not a number of GiB above 0$"),
        ("/", "0", r"^RAYFL_NODE_CACHE_GB: '0' is not a number"),
        ("/", "nan", r"^RAYFL_NODE_CACHE_GB: 'nan' is not a number"),
        ("/", "inf", r"^RAYFL_NODE_CACHE_GB: 'inf' is not a number"),
        ("FILE", "1", r"^RAYFL_NODE_CACHE: cannot keep 0.0 MiB in '.*' \(.*\); name a folder with room"),
        ("FILE/below", "1", r"^RAYFL_NODE_CACHE: cannot keep 0.0 MiB in '.*' \(.*\); name a folder with room"),
    ],
)
def test_a_cache_that_cannot_be_used_is_refused(
    folder: str, limit: str, message: str, tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("RAYFL_NODE_CACHE", folder.replace("FILE", str(tmp_path / "a file")))
    monkeypatch.setenv("RAYFL_NODE_CACHE_GB", limit)
    with pytest.raises(ResourceError, match=message) as caught:
        read(tmp_path / "it")
    assert "\n" not in str(caught.value)
