"""`rayfl data prepare`: goes on after a kill; refuses a changed source, a full disk, a folder of something else."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rayfl.__main__ import main as rayfl_command
from rayfl.config.data import Data
from rayfl.data.prepared import writer
from rayfl.data.prepared.manifest import INDEX, MANIFEST
from rayfl.data.prepared.progress import PROGRESS
from rayfl.data.prepared.reader import verify
from rayfl.errors import DataError
from tests.data.prepared.scenes import (
    IMAGES,
    LABELS,
    OWNER,
    VECTORS,
    data,
    from_disk,
    prepared,
    small_fragments,
    stored,
)

pytestmark = pytest.mark.usefixtures(small_fragments.__name__)


def interrupted(config: Data, folder: Path, after: int) -> None:
    """Prepares until some fragments are written."""
    told: list[str] = []

    def say(line: str) -> None:
        told.append(line)
        if len(told) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.prepare(config, 0, Path(), Path(), folder, say)


def npz(folder: Path, images: np.ndarray = IMAGES) -> Data:
    np.savez(folder / "it.npz", train_x=images, train_y=LABELS, train_owner=OWNER, test_x=images, test_y=LABELS)
    return Data.model_validate({"name": "npz_file", "options": {"path": str(folder / "it.npz")}})


def test_clients_stay_in_one_fragment_and_the_arrow_files_hold_the_rows_in_their_order(tmp_path: Path) -> None:
    source = data("images")
    manifest = prepared(source, tmp_path)
    fragments = manifest.sets["train"].fragments
    assert 2 < len(fragments) < 7
    assert any(len(fragment.blocks) > 1 for fragment in fragments)
    tables = [pa.ipc.open_file(str(tmp_path / fragment.file)).read_all() for fragment in fragments]
    assert [len(table) for table in tables] == [fragment.rows for fragment in fragments]
    order = np.argsort(OWNER, kind="stable")
    assert np.array_equal(np.concatenate([np.array(table["x"].to_pylist()) for table in tables]), IMAGES[order])
    index = pa.ipc.open_file(str(tmp_path / "index.arrow")).read_all()
    starts = np.cumsum([0, *(fragment.rows for fragment in fragments)])
    for client, (fragment, first, rows) in enumerate(
        zip(*(index[name].to_pylist() for name in index.schema.names[:3]), strict=True)
    ):
        mine = np.flatnonzero(OWNER[order] == client)
        assert [starts[fragment] + first, rows] == [mine[0], len(mine)]
        assert first + rows <= fragments[fragment].rows
    assert index["name"].to_pylist() == [f"site {client}" for client in range(7)]
    assert sum(index[name].nbytes for name in index.schema.names[:4]) == 16 * 7


def test_a_client_larger_than_a_fragment_gets_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FRAGMENT_BYTES", 10)
    manifest = prepared(data("images"), tmp_path)
    assert [fragment.rows for fragment in manifest.sets["train"].fragments] == np.bincount(OWNER).tolist()


@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_preparation_goes_on_with_the_fragments_that_are_whole(after: int, tmp_path: Path) -> None:
    whole, folder = prepared(data("images"), tmp_path / "whole"), tmp_path / "it"
    interrupted(data("images"), folder, after)
    fragments = sorted(folder.glob("*.arrow"))
    assert len(fragments) == after
    left = folder / ".train-00003.arrow.0123"  # as after a kill, which cleans nothing up
    left.write_bytes(b"half")
    with (folder / PROGRESS).open("a") as file:
        file.write('{"file": "train-0')
    inodes = [file.stat().st_ino for file in fragments]
    with pytest.raises(DataError, match=r"has no manifest\.json; finish `rayfl data prepare`"):
        stored(from_disk(folder))
    assert prepared(data("images"), folder) == whole
    assert [file.stat().st_ino for file in fragments] == inodes
    assert not left.exists()
    assert {file.name for file in folder.iterdir()} == {file.name for file in (tmp_path / "whole").iterdir()}
    verify(folder)


def test_a_fragment_that_was_damaged_in_between_is_written_again(tmp_path: Path) -> None:
    whole, folder = prepared(data("images"), tmp_path / "whole"), tmp_path / "it"
    interrupted(data("images"), folder, 2)
    first = folder / "train-00000.arrow"
    first.write_bytes(first.read_bytes()[:-1])
    assert prepared(data("images"), folder) == whole
    verify(folder)


def test_a_source_that_changed_in_between_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    interrupted(npz(tmp_path), folder, 2)
    changed = npz(tmp_path, 255 - IMAGES)
    with pytest.raises(
        DataError, match="the source changed while it was prepared; remove the folder and prepare it again"
    ):
        prepared(changed, folder)
    prepared(npz(tmp_path), folder)


def test_a_source_that_changes_while_it_is_read_leaves_no_manifest(tmp_path: Path) -> None:
    config = npz(tmp_path)

    def say(line: str) -> None:
        npz(tmp_path, 255 - IMAGES)

    with pytest.raises(DataError, match="the source changed while it was prepared"):
        writer.prepare(config, 0, Path(), Path(), tmp_path / "it", say)
    assert not (tmp_path / "it" / MANIFEST).exists()


def test_other_options_do_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    interrupted(data("vectors", clients=5), tmp_path, 1)
    with pytest.raises(DataError, match="was begun with other options; give the same, or remove the folder"):
        prepared(data("vectors", clients=6), tmp_path)


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**6, 10**6 - 5000, 5000))
    with pytest.raises(
        DataError, match=r"the prepared data takes .* GiB, but only .* GiB of the disk are free; free some"
    ):
        prepared(data("images"), tmp_path)
    assert not list(tmp_path.glob("*.arrow"))


@pytest.mark.parametrize("what", ["prepared", "other"])
def test_a_folder_that_holds_something_else_is_left_alone(what: str, tmp_path: Path) -> None:
    if what == "prepared":
        prepared(data("images"), tmp_path)
    else:
        (tmp_path / "thesis.tex").write_text("mine")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    message = "already holds prepared data" if what == "prepared" else "is not empty, and holds no preparation"
    with pytest.raises(DataError, match=message):
        prepared(data("images"), tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "it"
    assert rayfl_command(["data", "prepare", "tests.data.prepared.scenes:images", str(folder)]) == 1
    expected = f"error: {folder}: cannot be written to (Not a directory); name a folder that can\n"
    assert capsys.readouterr().err == expected


def test_what_cannot_be_prepared_is_refused(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path / "it")
    with pytest.raises(DataError, match="'prepared' is prepared already; name the source"):
        prepared(from_disk(tmp_path / "it"), tmp_path / "again")
    with pytest.raises(DataError, match=r"images .* are rendered for every batch; use the source itself"):
        prepared(
            Data.model_validate({"name": "fractals", "clients": 2, "options": {"codes": 4, "size": 8}}), tmp_path / "f"
        )


def parquet(folder: Path, inputs: Any, **tables: Any) -> Data:
    ragged = pa.array([VECTORS[row, : 1 + row % 4].tolist() for row in range(len(VECTORS))], pa.list_(pa.float32()))
    columns: dict[str, Any] = {f"x{place}": values for place, values in enumerate(VECTORS.T)}
    table = pa.table({**columns, "words": ragged, "label": LABELS, "site": OWNER})
    (folder / "source").mkdir()
    for number in range(3):
        pq.write_table(table.slice(40 * number, 40), folder / "source" / f"{number}.parquet", row_group_size=7)
    options = {"path": str(folder / "source"), "inputs": inputs, "label": "label", "owner": "site"}
    return Data.model_validate({"name": "parquet_folder", "options": options, **tables})


@pytest.mark.parametrize("inputs", ["x1", ["x0", "x2", "x3"], "words", {"a": "x0", "b": "words"}])
def test_parquet_is_prepared_through_a_file_that_leaves_nothing_behind(inputs: Any, tmp_path: Path) -> None:
    collate = {"collate": "tests.data.prepared.test_writing:as_it_is"} if "words" in str(inputs) else {}
    source = parquet(tmp_path, inputs, **collate)
    prepared(source, tmp_path / "it")
    before, after = stored(source), stored(from_disk(tmp_path / "it", **collate))
    for one, other in ((before.train, after.train), (before.test, after.test)):
        rows = np.arange(len(one))
        parts = [(part.arrays if isinstance(inputs, dict) else {"": part}) for part in (one.x, other.x)]
        for name in parts[0]:
            pairs = zip(parts[0][name][rows], parts[1][name][rows], strict=True)
            assert all(np.array_equal(mine, theirs) for mine, theirs in pairs)
        assert np.array_equal(one.y, other.y)
    others = {file.name for file in (tmp_path / "it").iterdir() if "0" not in file.name}
    assert others == {MANIFEST, INDEX, "train-labels.npy", "test-labels.npy"}


def as_it_is(inputs: list[Any]) -> torch.Tensor:
    return torch.zeros(len(inputs))


def test_the_commands_prepare_and_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / 'it "is"\\'
    monkeypatch.chdir(tmp_path)
    options = ["data.clients=5", "data.partition.name=dirichlet", "data.partition.beta=1.0", "data.seed=3"]
    assert rayfl_command(["data", "prepare", "tests.data.prepared.scenes:vectors", folder.name, *options]) == 0
    out = capsys.readouterr().out
    assert (
        f"prepared tests.data.prepared.scenes:vectors in {folder.name}: 5 clients, samples: 120 in train, 30 in test"
        in out
    )
    (line,) = [line for line in out.splitlines() if line.startswith("write: ")]
    assert tomllib.loads(line.removeprefix("write: ")) == {
        "data": {"name": "prepared", "options": {"path": str(folder)}}
    }
    manifest = json.loads((folder / MANIFEST).read_text())
    assert (manifest["seed"], manifest["clients"], manifest["partition"]["beta"]) == (3, 5, 1.0)
    assert rayfl_command(["data", "verify", str(folder)]) == 0
    assert "files with" in capsys.readouterr().out
    (folder / "train-00000.arrow").write_bytes(b"")
    assert rayfl_command(["data", "verify", str(folder)]) == 1
    assert "cut short or replaced?" in capsys.readouterr().err
