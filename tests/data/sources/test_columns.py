"""Parquet folders, data sets of Hugging Face's `datasets`, and NumPy files: written here, read by rayfl."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rayfl.config.data import Data
from rayfl.config.loader import absolute
from rayfl.data.inputs import Fields, Ragged
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import RayflError
from tests.data.resolved import resolved

RNG = np.random.default_rng(0)
N = 40
AGE, INCOME = RNG.integers(20, 60, N), RNG.normal(size=N)
CITY = RNG.choice(["rome", "oslo", "lima"], N)
SPLIT = np.array(["train", "train", "train", "test", "elsewhere"] * 8)
WORDS = [RNG.integers(0, 9, RNG.integers(1, 5)) for _ in range(N)]
VECTORS = RNG.normal(size=(N, 3))
PIXELS = RNG.integers(0, 256, (N, 4, 5, 3), np.uint8)


def png(pixels: np.ndarray) -> bytes:
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, format="PNG")
    return written.getvalue()


COLUMNS = {
    "age": pa.array(AGE),
    "income": pa.array(INCOME),
    "city": pa.array(CITY),
    "part": pa.array(SPLIT),
    "writer": pa.array(np.arange(N) % 4),
    "words": pa.array([word.tolist() for word in WORDS]),
    "vector": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 3),
    "image": pa.array([png(pixels) for pixels in PIXELS]),
    "empty": pa.array([None] * N, pa.float64()),
}
TABLE = pa.table(COLUMNS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people").mkdir()
    for number, start in enumerate(range(0, N, 15)):
        pq.write_table(TABLE.slice(start, 15), tmp_path / "people" / f"{number}.parquet")
    return tmp_path


def store(folder: Path, name: str = "parquet_folder", data: Any = None, **options: Any) -> ShardStore:
    path = {"path": "people"} if name == "parquet_folder" else {}
    tables = {"name": name, "options": path | options} | (data or {"clients": 2, "partition": "iid"})
    tables = absolute({"data": tables}, folder)["data"]
    return build_store(resolved(Data.model_validate(tables)), 0, folder, folder)


def test_numeric_columns_form_vectors_and_strings_are_classes(folder: Path) -> None:
    found = store(folder, inputs=["age", "income"], label="city", split="part")
    train, elsewhere = SPLIT == "train", SPLIT == "elsewhere"
    np.testing.assert_allclose(found.train.x, np.stack([AGE, INCOME], axis=1)[train], rtol=1e-6)
    assert found.num_classes == 3
    assert np.array(["lima", "oslo", "rome"])[found.train.y].tolist() == CITY[train].tolist()
    assert (
        np.array(["lima", "oslo", "rome"])[found.held_out["elsewhere"].samples.y].tolist() == CITY[elsewhere].tolist()
    )
    assert [Path(path).name for path, _ in found.provenance.files] == ["0.parquet", "1.parquet", "2.parquet"]


def test_an_owner_column_defines_natural_clients(folder: Path) -> None:
    options = {"inputs": "vector", "label": "income", "owner": "writer", "split": "part"}
    found = store(folder, data={"validation_share": 0.2}, **options)
    assert found.num_clients == 4
    assert found.test_shards is not None
    train = np.flatnonzero((SPLIT == "train") & (np.arange(N) % 4 == 2))
    assert found.held_out["validation"].shards is not None
    mine = np.concatenate(
        [
            found.train.y[found.train_shards[2]],
            found.held_out["validation"].samples.y[found.held_out["validation"].shards[2]],
        ]
    )
    np.testing.assert_allclose(np.sort(mine), np.sort(INCOME[train]), rtol=1e-6)
    assert found.num_classes is None


def test_test_samples_of_owners_who_train_on_none_belong_to_no_client(folder: Path) -> None:
    city = pa.array(np.where(SPLIT == "test", "bonn", CITY))
    pq.write_table(
        TABLE.append_column("home", city).append_column("id", pa.array(np.arange(N))), folder / "all.parquet"
    )
    options = {"path": str(folder / "all.parquet"), "inputs": "vector", "label": "writer"}
    found = store(folder, data={"partition": "natural"}, owner="home", split="part", **options)
    assert (found.num_clients, found.test_shards, len(found.test)) == (3, None, np.sum(SPLIT == "test"))
    alone = store(folder, data={"partition": "natural"}, owner="id", **options)
    assert (alone.num_clients, alone.test_shards, len(alone.test)) == (36, None, 4)


def test_lists_of_different_lengths_images_and_arguments_by_name(folder: Path) -> None:
    x = store(folder, data={"clients": 2, "collate": "pad"}, inputs="words", label="city", split="part").train.x
    assert isinstance(x, Ragged)
    train = np.flatnonzero(SPLIT == "train")
    assert [piece.tolist() for piece in x[:]] == [WORDS[row].tolist() for row in train]
    images = store(folder, inputs="image", label=["age", "income"], split="part").train
    assert np.array_equal(images.x, PIXELS[train])
    np.testing.assert_allclose(images.y, np.stack([AGE, INCOME], axis=1)[train], rtol=1e-6)
    named = store(folder, inputs={"a": "vector", "b": "age"}, label="city", split="part").train.x
    assert isinstance(named, Fields)
    np.testing.assert_allclose(np.asarray(named.arrays["a"]), VECTORS[train], rtol=1e-6)


def test_rows_that_are_decoded_one_by_one_are_those_of_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grey_first = [png(pixels[..., 0] if row < 5 else pixels) for row, pixels in enumerate(PIXELS)]
    nested = pa.array([[[1.5, float(row)]] * (1 + row % 3) for row in range(N)])
    holes = pa.array([None if row % 2 else 1.0 for row in range(N)])
    more = {"mixed": pa.array(grey_first), "nested": nested, "holes": holes, "large": pa.array(INCOME * 1e39)}
    pq.write_table(pa.table({**COLUMNS, **more}), tmp_path / "all.parquet", row_group_size=30)
    expected = np.stack([np.repeat(pixels[..., :1], 3, 2) if row < 5 else pixels for row, pixels in enumerate(PIXELS)])

    def read(inputs: Any) -> list[Any]:
        collate = {"collate": "pad"} if inputs in ("words", "nested") else {}
        data = {"clients": 2, "partition": "iid", **collate}
        found = store(tmp_path, data=data, path="all.parquet", inputs=inputs, label="city", split="part")
        return [[np.asarray(row).tolist() for row in samples.x[:]] for samples in (found.train, found.test)]

    kinds: list[Any] = ["words", "nested", "vector", "image", "mixed", "age", ["age", "income"]]
    whole = [read(inputs) for inputs in kinds]
    monkeypatch.setattr("rayfl.data.formats.parquet.BYTES_AT_ONCE", 1)
    assert [read(inputs) for inputs in kinds] == whole
    assert read("mixed")[0] == expected[SPLIT == "train"].tolist()
    largest = max(INCOME.min(), INCOME.max(), key=abs) * 1e39
    for inputs, message in (("holes", "has 20 empty values"), ("large", f"hold {largest:.6g}".replace("+", r"\+"))):
        with pytest.raises(RayflError, match=rf"column '{inputs}' {message}"):
            read(inputs)


def with_scans(folder: Path, scans: list[np.ndarray]) -> None:
    files = []
    for scan in scans:
        written = io.BytesIO()
        Image.fromarray(scan).save(written, format="TIFF")
        files.append(written.getvalue())
    pq.write_table(pa.table({"image": pa.array(files), "label": [0, 1, 0, 1]}), folder / "scans.parquet")


@pytest.mark.parametrize(
    ("kind", "scale", "remedy"),
    [
        (np.uint16, 257, r"I;16.*; convert it to 8 bits per channel, and scale its pixels \(// 257 from 16 bits\)"),
        (np.int32, 257, "I with the value .*; convert it to 8 bits per channel, and scale its pixels to whole numbers"),
        (np.int32, -1, "I with the value -.*; convert it to 8 bits"),
        (np.float32, 1 / 257, r"F with the value 0\..*; convert it to 8 bits"),
    ],
)
def test_grey_levels_that_8_bits_cannot_hold_are_refused_and_not_clipped(
    kind: Any, scale: float, remedy: str, tmp_path: Path
) -> None:
    scans = [(PIXELS[row, :, :, 0].astype(np.float64) * scale).astype(kind) for row in range(4)]
    with_scans(tmp_path, scans)
    with pytest.raises(RayflError, match=r"scans\.parquet: column 'image', row 0 has pixels of mode " + remedy):
        store(tmp_path, path="scans.parquet", inputs="image", label="label")


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_grey_levels_from_0_to_255_are_kept_in_whatever_type_a_file_has_them(kind: Any, tmp_path: Path) -> None:
    with_scans(tmp_path, [PIXELS[row, :, :, 0].astype(kind) for row in range(4)])
    found = store(tmp_path, path="scans.parquet", inputs="image", label="label")
    kept = np.asarray(found.train.x)
    assert kept.dtype == np.uint8
    for image in kept:
        assert any(np.array_equal(image, np.broadcast_to(PIXELS[row, :, :, :1], image.shape)) for row in range(4))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 1.0, np.nan, np.inf], r"column 'x' hold values that are not finite: the first in row 2; leave"),
        ([0.5, -1e39, 1.0, 2.0], r"column 'x' hold -1e\+39, too large for float32, .*; scale"),
    ],
)
def test_numbers_that_are_not_finite_or_too_large_are_found_in_their_column(
    values: list[float], message: str, tmp_path: Path
) -> None:
    for inputs, label in (("x", "y"), ("y", "x")):
        pq.write_table(pa.table({"x": values, "y": [0, 1, 0, 1]}), tmp_path / "wrong.parquet")
        with pytest.raises(RayflError, match=rf"wrong\.parquet: {message}"):
            store(tmp_path, path="wrong.parquet", inputs=inputs, label=label)


def test_without_a_split_test_samples_are_drawn_with_the_datas_seed(folder: Path) -> None:
    found = store(folder, inputs="age", label="income", test_share=0.25)
    assert (len(found.test), len(found.train)) == (10, 30)
    assert sorted([*found.train.x, *found.test.x]) == sorted(AGE)
    again = store(folder, inputs="age", label="income", test_share=0.25)
    assert np.asarray(found.test.x).tolist() == np.asarray(again.test.x).tolist()


def test_arrays_of_a_numpy_file_may_have_owners(tmp_path: Path) -> None:
    owner = np.array(["b", "a"] * 20)
    arrays: dict[str, Any] = {
        "train_x": VECTORS,
        "train_y": AGE % 3,
        "train_owner": owner,
        "test_x": VECTORS[:6],
        "test_y": AGE[:6] % 3,
    }
    np.savez(tmp_path / "mine.npz", **arrays, far_x=VECTORS, far_y=AGE % 3)
    found = store(tmp_path, "npz_file", {"validation_share": 0.1}, path="mine.npz")
    assert (found.num_clients, found.num_classes, list(found.held_out)) == (2, 3, ["validation", "far"])
    np.savez(tmp_path / "odd.npz", **arrays, other=VECTORS)
    np.savez(tmp_path / "few.npz", train_x=VECTORS, train_y=AGE)
    np.savez(tmp_path / "objects.npz", train_x=np.array([{}, {}], object))
    (tmp_path / "text.npz").write_text("no archive")
    for path, message in (
        ("odd.npz", "has an array 'other'; names are train_x"),
        ("few.npz", "has no array 'test_x'; it has train_x, train_y"),
        ("objects.npz", "cannot be read as .npz, .*allow_pickle"),
        ("text.npz", "cannot be read as .npz"),
        ("none.npz", "none.npz: cannot be read"),
    ):
        with pytest.raises(RayflError, match=message):
            store(tmp_path, "npz_file", path=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "ag", "label": "city"}, "has no column 'ag'; did you mean 'age'"),
        ({"inputs": "city", "label": "age"}, "column 'city' is string, but must hold numbers or lists of numbers"),
        ({"inputs": "empty", "label": "age"}, "column 'empty' has 40 empty values"),
        ({"inputs": ["words", "age"], "label": "age"}, "column 'words' has lists; only columns of single numbers"),
        ({"inputs": "age", "label": "words"}, "column 'words' has labels of different lengths"),
        (
            {"inputs": "age", "label": "city", "owner": "income"},
            "column 'income' is double, but must hold strings or integers",
        ),
        (
            {"inputs": "age", "label": "city", "split": "city"},
            "column 'city' has lima, oslo, rome, but needs 'train' and 'test'",
        ),
        ({"inputs": "age", "label": "city", "split": "part", "test_share": 0.5}, r"data\.options\.test_share: .*leave"),
        ({"inputs": "age", "label": "city", "path": "none"}, r"data\.options\.path: .*none is neither a Parquet file"),
        ({"inputs": "age"}, r"data\.options: needs label"),
        ({"inputs": 3, "label": "city"}, r"data\.options\.inputs"),
        ({"inputs": [], "label": "city"}, r"data\.options\.inputs"),
    ],
)
def test_columns_that_cannot_be_read_are_named(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(RayflError, match=message):
        store(folder, **options)


def test_a_damaged_file_and_one_with_other_columns_are_named(folder: Path) -> None:
    pq.write_table(TABLE.select(["age"]), folder / "people" / "3.parquet")
    with pytest.raises(RayflError, match=r"3\.parquet: has different columns than 0\.parquet: age: int64"):
        store(folder, inputs="age", label="city")
    (folder / "people" / "1.parquet").write_bytes((folder / "people" / "1.parquet").read_bytes()[:200])
    with pytest.raises(RayflError, match=r"1\.parquet: cannot be read as Parquet"):
        store(folder, inputs="age", label="city")


datasets = pytest.importorskip("datasets")


def saved(folder: Path, split: bool = True) -> None:
    columns = {
        "image": [Image.fromarray(pixels) for pixels in PIXELS],
        "label": (AGE % 3).tolist(),
        "words": [word.tolist() for word in WORDS],
        "writer": [f"w{row % 4}" for row in range(N)],
    }
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["a", "b", "c", "never"]),
        words=datasets.Sequence(datasets.Value("int32")),
        writer=datasets.Value("string"),
    )
    whole = datasets.Dataset.from_dict(columns, features=features)
    parts = {name: whole.select(np.flatnonzero(name == SPLIT)) for name in ("train", "test", "elsewhere")}
    (datasets.DatasetDict(parts) if split else whole).save_to_disk(str(folder / "saved"))


def test_a_saved_hugging_face_data_set_is_read_with_its_splits_classes_and_images(tmp_path: Path) -> None:
    saved(tmp_path)
    options = {"path": "saved", "inputs": "image", "label": "label", "owner": "writer"}
    found = store(tmp_path, "huggingface", {"partition": "natural"}, tests={"far": "elsewhere"}, **options)
    assert (found.num_classes, found.num_clients) == (4, 4)
    train = np.flatnonzero(SPLIT == "train")
    mine = train[train % 4 == 1]
    assert np.array_equal(found.train.x[found.train_shards[1]], PIXELS[mine])
    assert found.train.y[found.train_shards[1]].tolist() == (AGE[mine] % 3).tolist()
    far = found.held_out["far"].samples
    assert np.array_equal(far.x, PIXELS[SPLIT == "elsewhere"])
    assert len(found.provenance.files) == 3
    assert all(path.endswith(".arrow") and len(digest) == 64 for path, digest in found.provenance.files)


def test_a_saved_data_set_without_splits_and_with_sequences(tmp_path: Path) -> None:
    saved(tmp_path, split=False)
    data = {"clients": 2, "partition": "iid", "collate": "pad"}
    found = store(tmp_path, "huggingface", data, path="saved", inputs="words", label="label", test_share=0.5)
    assert (len(found.train), len(found.test)) == (20, 20)
    together = [piece.tolist() for samples in (found.train, found.test) for piece in samples.x[:]]
    assert sorted(together) == sorted(word.tolist() for word in WORDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"data\.options: huggingface needs either path, a folder, or hub"),
        ({"path": "saved", "hub": "mnist"}, r"data\.options: huggingface needs either path, a folder, or hub"),
        ({"path": "saved", "revision": "main"}, "config and revision are for data from the hub"),
        ({"path": "nowhere"}, "nowhere: cannot be loaded by datasets"),
        ({"path": "saved", "test": "tst"}, "has no split 'tst'; did you mean 'test'"),
        ({"path": "saved", "test_share": 0.1}, r"data\.options\.test_share: .*saved has splits; leave it out"),
        ({"path": "saved", "label": "lable"}, "has no column 'lable'; did you mean 'label'"),
    ],
)
def test_parts_of_a_saved_data_set_that_cannot_be_read_are_named(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    with pytest.raises(RayflError, match=message):
        store(tmp_path, "huggingface", **{"inputs": "image", "label": "label"} | options)


FEATURES = {
    "image": datasets.Image(),
    "label": datasets.ClassLabel(names=["a", "b", "c"]),
    "site": datasets.ClassLabel(names=["rome", "oslo", "lima", "bonn"]),
    "volume": datasets.Array3D((2, 3, 1), "float32"),
    "words": datasets.Sequence(datasets.Value("int32")),
    "pairs": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=2), length=1),
    "tags": datasets.Sequence(datasets.ClassLabel(names=["x", "y"])),
    "text": datasets.Value("string"),
    "age": datasets.Value("int64"),
}
VALUES: dict[str, Any] = {
    "image": [Image.fromarray(pixels) for pixels in PIXELS],
    "label": (AGE % 3).tolist(),
    "site": (np.arange(N) % 4).tolist(),
    "volume": RNG.normal(size=(N, 2, 3, 1)).astype(np.float32),
    "words": [word.tolist() for word in WORDS],
    "pairs": RNG.normal(size=(N, 1, 2)).tolist(),
    "tags": [[0, 1]] * N,
    "text": ["t"] * N,
    "age": AGE.tolist(),
}


def saved_columns(folder: Path, columns: str) -> None:
    names = columns.split()
    features = datasets.Features({name: FEATURES[name] for name in names})
    whole = datasets.Dataset.from_dict({name: VALUES[name] for name in names}, features=features)
    whole.save_to_disk(str(folder / "saved"))


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ("image label text age", {"inputs": "image", "label": "label"}),
        ("volume label tags", {"inputs": "volume", "label": "label"}),
        ("pairs label", {"inputs": "pairs", "label": "label"}),
    ],
)
def test_features_say_which_columns_are_inputs_and_labels(columns: str, chosen: dict[str, str], tmp_path: Path) -> None:
    saved_columns(tmp_path, columns)
    found, expected = (store(tmp_path, "huggingface", path="saved", **given) for given in ({}, chosen))
    np.testing.assert_array_equal(found.train.x, expected.train.x)
    np.testing.assert_array_equal(found.train.y, expected.train.y)
    assert found.num_classes == 3


def test_columns_have_one_role_and_owners_that_are_classes_have_class_names(tmp_path: Path) -> None:
    saved_columns(tmp_path, "image label site words")
    data = {"partition": "natural"}
    found = store(tmp_path, "huggingface", data, path="saved", inputs="image", owner="site")
    assert found.num_classes == 3
    assert found.client_names is not None
    assert [found.client_names[client] for client in range(4)] == ["bonn", "lima", "oslo", "rome"]
    other = store(tmp_path, "huggingface", path="saved", inputs="image", label="site")
    assert other.num_classes == 4


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            "image text age",
            {},
            r"saved: no column is a ClassLabel; name one in data\.options\.label \(there are image, ",
        ),
        ("image label site", {}, r"saved: label, site are each a ClassLabel; name one in data\.options\.label$"),
        (
            "label text age tags",
            {},
            r"no column is an image, or an array or list of numbers; name one in data\.options\.inp",
        ),
        ("label image words", {}, r"saved: image, words are each an image, or .*; name one in data\.options\.inputs$"),
        ("label image", {"inputs": "image", "owner": "label"}, r"no column is a ClassLabel; .* \(there are none\)"),
    ],
)
def test_ambiguous_features_raise_and_list_the_candidates(
    columns: str, options: dict[str, str], message: str, tmp_path: Path
) -> None:
    saved_columns(tmp_path, columns)
    with pytest.raises(RayflError, match=message) as caught:
        store(tmp_path, "huggingface", path="saved", **options)
    assert "\n" not in str(caught.value)
