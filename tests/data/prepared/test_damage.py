"""Prepared data that is cut short, damaged, replaced or made up is refused in one line."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rayfl.data.prepared import fragments
from rayfl.data.prepared.manifest import INDEX, MANIFEST, StoredFile
from rayfl.data.prepared.reader import verify
from rayfl.errors import DataError, RayflError
from tests.data.prepared.scenes import data, from_disk, prepared, small_fragments, stored

pytestmark = pytest.mark.usefixtures(small_fragments.__name__)


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    edit(content)
    (folder / MANIFEST).write_text(json.dumps(content))


def forget() -> None:
    """As in a process that has not opened the folder yet."""
    for cached in (fragments._stored_rows, fragments._manifest, fragments.mapped_labels):
        cached.cache_clear()


def read_all(folder: Path) -> None:
    forget()
    store = stored(from_disk(folder))
    for samples in (store.train, store.test, store.samples("sketches")):
        samples.x[:]


def refused(folder: Path, message: str) -> None:
    """Both a run and `verify` refuse the folder."""
    for read in (read_all, verify):
        with pytest.raises(DataError, match=message) as caught:
            read(folder)
        assert "\n" not in str(caught.value)


def test_every_file_is_checked_for_its_size_and_its_content(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    files = [file for file in tmp_path.iterdir() if file.name != MANIFEST]
    assert len(files) >= 10
    verify(tmp_path)
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        refused(tmp_path, rf"{re.escape(str(file))}: has .* bytes instead of .*, cut short or replaced\?")
        file.unlink()
        refused(tmp_path, rf"{re.escape(str(file))}: cannot be read")
        file.write_bytes(whole)
    read_all(tmp_path)


def test_a_changed_byte_is_found_when_it_is_first_read_and_not_before(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    first, second, *_ = json.loads((tmp_path / MANIFEST).read_text())["sets"]["train"]["fragments"]
    flip(tmp_path / second["file"], second["blocks"][0][1])
    store, rows = stored(from_disk(tmp_path)), sum(block[0] for block in first["blocks"])
    assert store.train.x[:rows].any()
    for _ in range(2):
        with pytest.raises(
            DataError, match=r"train-00001\.arrow: is damaged: bytes from [\d,]+ on have another digest"
        ):
            store.train.x[rows : rows + 1]
    with pytest.raises(DataError, match="is damaged"):
        verify(tmp_path)


def outside(folder: Path, values: dict[str, list[int]]) -> None:
    """Writes another index, with a digest that fits."""
    with pa.ipc.open_file(str(folder / INDEX)) as reader:
        table = reader.read_all()
    for name, numbers in values.items():
        table = table.set_column(table.schema.names.index(name), name, pa.array(numbers, pa.uint32()))
    with pa.ipc.new_file(str(folder / INDEX), table.schema) as writer:
        writer.write_table(table)
    change(folder, lambda content: content.update(index=StoredFile.of(folder / INDEX, INDEX).model_dump()))


@pytest.mark.parametrize("column", ["fragment", "first", "rows", "test_rows"])
def test_an_index_that_points_outside_is_refused(column: str, tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    with pa.ipc.open_file(str(tmp_path / INDEX)) as reader:
        numbers = reader.read_all()[column].to_pylist()
    outside(tmp_path, {column: [*numbers[:-1], 2**32 - 1]})
    message = (
        "its clients have" if column == "test_rows" else r"client 6 has rows \d+ to \d+ of fragment \d+, which lie"
    )
    refused(tmp_path, rf"index\.arrow: {message}")


def test_an_index_of_overlapping_clients_is_refused(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    with pa.ipc.open_file(str(tmp_path / INDEX)) as reader:
        first = reader.read_all()["first"].to_pylist()
    place = next(number for number, row in enumerate(first) if row)
    outside(tmp_path, {"first": [*first[:place], first[place] - 1, *first[place + 1 :]]})
    refused(tmp_path, rf"index\.arrow: client {place} has rows .* or are not the next")


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "C:\\secret", ""])
@pytest.mark.parametrize("which", ["fragment", "labels", "index"])
def test_a_place_outside_the_folder_is_refused(place: str, which: str, tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)

    def edit(content: dict[str, Any]) -> None:
        train = content["sets"]["train"]
        {"fragment": train["fragments"][0], "labels": train["labels"], "index": content["index"]}[which]["file"] = place

    change(tmp_path, edit)
    refused(tmp_path, "is not a place inside its folder")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    prepared(data("images"), folder)
    (folder / "train-00000.arrow").rename(tmp_path / "elsewhere")
    (folder / "train-00000.arrow").symlink_to(tmp_path / "elsewhere")
    refused(folder, "is not a place inside its folder, by a symbolic link")


def _later(content: dict[str, Any]) -> None:
    block = content["sets"]["train"]["fragments"][0]["blocks"][0]
    block[1] = 10**9


def _more_rows(content: dict[str, Any]) -> None:
    content["sets"]["train"]["fragments"][-1]["blocks"][-1][0] += 1


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda content: content["sets"].pop("test"),
            r"manifest\.json: cannot be read as a manifest .*'train' or 'test'",
        ),
        (lambda content: content.update(format="other"), "cannot be read as a manifest of prepared data"),
        (lambda content: content.update(clients=6), "has 7 clients, but the manifest 6"),
        (lambda content: content["columns"][0].update(dtype="object"), "cannot be read as a manifest"),
        (lambda content: content["index"].update(digests="00"), "digits of digests"),
        (lambda content: content["partition"].update(name=7), "cannot be read as a manifest"),
        (lambda content: content["columns"][0].update(shape=[2**40]), "names values outside it"),
        (lambda content: content["sets"]["train"]["fragments"][0]["blocks"][0].append(2**64), "less than or equal"),
        (lambda content: content["sets"]["train"]["fragments"][0]["blocks"][0].pop(), "its blocks lack columns"),
        (_more_rows, "training and .* test samples, but the fragments"),
    ],
)
def test_a_manifest_that_contradicts_itself_or_its_files_is_refused(
    edit: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path
) -> None:
    prepared(data("images"), tmp_path)
    change(tmp_path, edit)
    refused(tmp_path, message)


def test_values_outside_of_a_fragment_are_not_read(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    change(tmp_path, _later)
    refused(tmp_path, r"manifest\.json: .*train-00000\.arrow: the manifest names values outside it")


def test_offsets_of_pieces_that_lie_outside_are_not_followed(tmp_path: Path) -> None:
    prepared(data("words"), tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())["sets"]["train"]["fragments"][0]
    file, offsets = tmp_path / content["file"], content["blocks"][0][1]
    for wrong, message in ((10**12, "values outside it"), (-5, "values outside it")):
        written = bytearray(file.read_bytes())
        written[offsets + 16 : offsets + 24] = np.int64(wrong).tobytes()
        file.write_bytes(written)
        change(
            tmp_path,
            lambda content: content["sets"]["train"]["fragments"][0].update(
                StoredFile.of(file, file.name).model_dump()
            ),
        )
        forget()
        with pytest.raises(DataError, match=message):
            stored(from_disk(tmp_path, collate="pad")).train.x[np.arange(3)]


def test_labels_that_hold_objects_are_not_unpickled(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    file = tmp_path / "train-labels.npy"
    np.save(file, np.array([{}] * 120, object), allow_pickle=True)
    change(
        tmp_path,
        lambda content: content["sets"]["train"].update(labels=StoredFile.of(file, file.name).model_dump()),
    )
    with pytest.raises(DataError, match=r"train-labels\.npy: cannot be read as labels"):
        read_all(tmp_path)


def test_a_host_with_another_manifest_ends_before_it_trains(tmp_path: Path) -> None:
    prepared(data("images"), tmp_path)
    sent = pickle.dumps(stored(from_disk(tmp_path)).train.x)
    change(tmp_path, lambda content: content.update(description="another"))
    forget()
    received = pickle.loads(sent)  # noqa: S301 - as Ray does between its own processes
    with pytest.raises(DataError, match=r"manifest\.json: is another than where the run started"):
        received.reopen()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"partition": "iid", "clients": 5},
            r"'iid' .*, but .* was prepared with 'dirichlet' \(beta = 1.0,.*leave data",
        ),
        ({"partition": {"name": "dirichlet", "beta": 0.5}, "clients": 5}, "beta = 0.5.*was prepared with .*beta = 1.0"),
        ({"partition": {"name": "dirichlet", "beta": 1.0}, "clients": 4}, "4 clients.*was prepared with .*5 clients"),
        ({"partition": {"name": "dirichlet", "beta": 1.0}, "clients": 5, "seed": 1}, "data seed 1, but .*data seed 0"),
        ({"partition": "natural"}, "'natural'.*was prepared with 'dirichlet'"),
        (
            {"partition": {"name": "dirichlet", "beta": 1.0}, "clients": 5, "classes": {"places": [[0, 2]]}},
            "'dirichlet' of the classes in data.classes is not the partition of .*, which was prepared with more",
        ),
        ({"source": "generated"}, "'prepared' has nothing to generate"),
    ],
)
def test_a_manifest_of_another_partition_is_refused(tables: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = data("vectors", clients=5, partition={"name": "dirichlet", "beta": 1.0})
    prepared(source, tmp_path)
    stored(from_disk(tmp_path, clients=5, partition={"name": "dirichlet", "beta": 1.0}))
    with pytest.raises(RayflError, match=message):
        stored(from_disk(tmp_path, **tables), tables.get("seed", 0))


def test_a_folder_without_a_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no manifest\.json; finish `rayfl data prepare`"):
        stored(from_disk(tmp_path))
