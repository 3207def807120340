"""CIFAR: three forms of the files give the same samples; damage and the stand-in are named."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.sources import cifar
from rayfl.data.sources.cifar import read_pickle
from rayfl.errors import DataError, ScenarioError

ROWS = 6
Name = Literal["cifar10", "cifar100"]


def _images(seed: int) -> np.ndarray:
    """Channel by channel, as in the files of CIFAR."""
    return np.random.default_rng(seed).integers(0, 256, (ROWS, 3, 32, 32), np.uint8)


def _labels(seed: int, classes: int) -> np.ndarray:
    return np.random.default_rng(100 + seed).integers(0, classes, ROWS)


def _batches(name: Name) -> list[str]:
    return [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"] if name == "cifar10" else ["train", "test"]


def _pickled(name: Name, seed: int, **other: Any) -> bytes:
    batch: dict[bytes, Any] = {b"data": _images(seed).reshape(ROWS, 3072), b"filenames": [b"a.png"] * ROWS}
    if name == "cifar10":
        batch[b"labels"] = _labels(seed, 10).tolist()
    else:
        batch |= {b"fine_labels": _labels(seed, 100).tolist(), b"coarse_labels": _labels(seed, 20).tolist()}
    batch |= {key.encode(): value for key, value in other.items()}
    return pickle.dumps(batch, protocol=3)


def _write_python(folder: Path, name: Name) -> Path:
    folder = folder / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    folder.mkdir(parents=True)
    for seed, batch in enumerate(_batches(name)):
        (folder / batch).write_bytes(_pickled(name, seed))
    return folder


def _write_binary(folder: Path, name: Name) -> Path:
    folder = folder / {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    folder.mkdir(parents=True)
    for seed, batch in enumerate(_batches(name)):
        labels = [_labels(seed, 10)] if name == "cifar10" else [_labels(seed, 20), _labels(seed, 100)]
        records = np.concatenate([np.stack(labels, 1).astype(np.uint8), _images(seed).reshape(ROWS, 3072)], axis=1)
        (folder / f"{batch}.bin").write_bytes(records.tobytes())
    return folder


def _table(name: Name) -> dict[str, pa.Array]:
    """Puts test rows first, to check that the column `split` is used."""
    seeds = list(range(len(_batches(name))))
    seeds = [seeds[-1], *seeds[:-1]]
    images = np.concatenate([_images(seed) for seed in seeds])
    columns = {"image": pa.array([image.tobytes() for image in images], pa.binary(3072))}
    for column, classes in (("label", 10 if name == "cifar10" else 100), ("coarse_label", 20)):
        columns[column] = pa.array(np.concatenate([_labels(seed, classes) for seed in seeds]).astype(np.int16))
    if name == "cifar10":
        del columns["coarse_label"]
    columns["split"] = pa.array(["test"] * ROWS + ["train"] * (len(images) - ROWS))
    return columns


def _write_parquet(folder: Path, name: Name) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}_subset.parquet"
    pq.write_table(pa.table(_table(name)), file)
    return file


def _load(tmp_path: Path, name: Name, source: str = "files", cache: Path = Path(), **options: Any) -> Dataset:
    given = {"source": source, "data_dir": tmp_path / "data", "cache_dir": cache, "seed": 0}
    load = {"cifar10": cifar.load_cifar10, "cifar100": cifar.load_cifar100}[name]
    dataset: Dataset = call_with_options(load, options, given, "data.options")
    return dataset


def _check(dataset: Dataset, name: Name, classes: int) -> None:
    seeds = range(len(_batches(name)))
    images = [_images(seed).transpose(0, 2, 3, 1) for seed in seeds]
    labels = [_labels(seed, classes) for seed in seeds]
    np.testing.assert_array_equal(np.asarray(dataset.train.x), np.concatenate(images[:-1]))
    np.testing.assert_array_equal(np.asarray(dataset.test.x), images[-1])
    np.testing.assert_array_equal(dataset.train.y, np.concatenate(labels[:-1]))
    np.testing.assert_array_equal(dataset.test.y, labels[-1])
    assert (dataset.train.x.dtype, dataset.train.y.dtype) == (np.dtype(np.uint8), np.dtype(np.int64))
    assert (dataset.name, dataset.num_classes, dataset.natural) == (name, classes, None)


@pytest.mark.parametrize("where", ["", "own"])
@pytest.mark.parametrize("write", [_write_python, _write_binary])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_original_versions_are_read_and_named(tmp_path: Path, name: Name, write: Any, where: str) -> None:
    folder = write(tmp_path / "data" / (name if where else ""), name)
    dataset = _load(tmp_path, name)
    _check(dataset, name, 10 if name == "cifar10" else 100)
    files = sorted(folder.iterdir(), key=lambda file: ("test" in file.name, file.name))
    assert dataset.provenance.files == tuple(
        (str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files
    )
    train = ROWS * (len(files) - 1)
    assert f"a subset: {train} training and {ROWS} test images of the 50000 and 10000" in dataset.provenance.description
    assert dataset.provenance.description.endswith(f"from {folder.name}/")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_parquet_is_read_and_called_a_subset(tmp_path: Path, name: Name) -> None:
    file = _write_parquet(tmp_path / "data" / name, name)
    dataset = _load(tmp_path, name, "auto")
    _check(dataset, name, 10 if name == "cifar10" else 100)
    assert dataset.provenance.source == "files"
    assert dataset.provenance.files == ((str(file), hashlib.sha256(file.read_bytes()).hexdigest()),)
    assert "a subset: " in dataset.provenance.description
    assert dataset.provenance.description.endswith(f"from {name}_subset.parquet")


@pytest.mark.parametrize("write", [_write_python, _write_binary, _write_parquet])
def test_coarse_labels_are_an_option(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "data" / "cifar100", "cifar100")
    _check(_load(tmp_path, "cifar100", labels="coarse"), "cifar100", 20)


def test_the_python_version_takes_precedence_over_a_parquet_subset(tmp_path: Path) -> None:
    _write_parquet(tmp_path / "data" / "cifar10", "cifar10")
    _write_python(tmp_path / "data", "cifar10")
    assert _load(tmp_path, "cifar10").provenance.description.endswith("cifar-10-batches-py/")


def test_unknown_labels_raise(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"data\.options\.labels: .*'fine' or 'coarse'"):
        _load(tmp_path, "cifar100", labels="superclass")


def test_without_files_the_message_says_where_it_looked_and_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        _load(tmp_path, "cifar10")
    message, data = str(raised.value), tmp_path / "data"
    assert message.startswith(f"CIFAR-10 not found: looked in {data / 'cifar10'} and {data} for cifar-10-batches-py")
    assert message.endswith(f"get it with `python -m rayfl.data.download cifar10 --data-dir {data}`")


@pytest.mark.parametrize("write", [_write_python, _write_binary])
def test_a_missing_batch_is_named_even_in_auto(tmp_path: Path, write: Any) -> None:
    folder = write(tmp_path / "data", "cifar10")
    missing = next(file for file in folder.iterdir() if "batch_3" in file.name)
    missing.unlink()
    with pytest.raises(DataError, match=f"{missing}: is missing, although its folder exists; get "):
        _load(tmp_path, "cifar10", "auto")


@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_a_truncated_pickle_is_named(tmp_path: Path, keep: int) -> None:
    file = _write_python(tmp_path / "data", "cifar10") / "data_batch_2"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=f"{file}: cannot be read as a pickle, truncated or corrupt?"):
        _load(tmp_path, "cifar10")


@pytest.mark.parametrize("keep", [0, 3072, -1])
def test_a_truncated_binary_file_is_named(tmp_path: Path, keep: int) -> None:
    file = _write_binary(tmp_path / "data", "cifar100") / "train.bin"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=rf"{file}: has \d+ bytes, not a multiple of 3074; truncated or corrupt"):
        _load(tmp_path, "cifar100")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"data": np.zeros((ROWS, 3071), np.uint8)}, "needs 'data', uint8"),
        ({"data": np.zeros((ROWS, 3072), np.float32)}, "needs 'data', uint8"),
        ({"data": np.zeros((3072, ROWS), np.uint8).T}, "needs 'data', uint8"),
        ({"data": [1, 2]}, "needs 'data', uint8"),
        ({"labels": ["1"] * ROWS}, r"needs 'data', uint8 \[n, 3072\], and 'labels', a list of integers"),
        ({"labels": [0] * (ROWS - 1)}, f"has {ROWS - 1} labels for {ROWS} images"),
        ({"labels": [0, 1, 2, 3, 4, 10]}, "labels run from 0 to 10, allowed are 0 to 9"),
    ],
)
def test_a_pickle_of_something_else_is_named(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    file = _write_python(tmp_path / "data", "cifar10") / "data_batch_1"
    file.write_bytes(_pickled("cifar10", 0, **other))
    with pytest.raises(DataError, match=f"{file}: {message}"):
        _load(tmp_path, "cifar10")


class _Touches:
    """An object that an attacker would put into a pickle."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.target,)


def test_a_pickle_with_code_raises_without_running_it(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    content = pickle.dumps({b"data": _Touches(target), b"labels": []}, protocol=3)
    with pytest.raises(DataError, match=r"x: cannot be read as a pickle.*it names .*, which CIFAR's files do not"):
        read_pickle(Path("x"), content, "labels")
    assert not target.exists()
    pickle.loads(content)  # noqa: S301 - shows that an ordinary reader would have run it
    assert target.exists()


def test_python_2_pickles_of_numpy_before_2_are_read() -> None:
    """The opcodes of the real files: protocol 2 written by Python 2, byte strings, `numpy.core.multiarray`."""
    data = bytes(range(256)) * 12
    content = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T" + len(data).to_bytes(4, "little") + data + b"tbU\x06labels]K\x07au."
    )
    images, labels = read_pickle(Path("x"), content, "labels")
    assert images.tobytes() == data
    assert labels.tolist() == [7]


def test_a_corrupt_parquet_file_is_named(tmp_path: Path) -> None:
    file = _write_parquet(tmp_path / "data" / "cifar10", "cifar10")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=f"{file}: cannot be read as Parquet, truncated or corrupt?"):
        _load(tmp_path, "cifar10", "auto")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("label", None, "has no column 'label'; expected image"),
        ("label", pa.array([11] * 36, pa.int16()), "labels run from 11 to 11, allowed are 0 to 9"),
        ("image", pa.array([bytes(3071)] * 36, pa.binary(3071)), r"column 'image' is fixed_size_binary\[3071\]"),
        ("split", pa.array(["train"] * 35 + ["valid"]), "column 'split' has train, valid; allowed are train and test"),
    ],
)
def test_other_columns_are_named(tmp_path: Path, column: str, values: pa.Array | None, message: str) -> None:
    file = _write_parquet(tmp_path / "data" / "cifar10", "cifar10")
    columns = _table("cifar10")
    if values is None:
        del columns[column]
    else:
        columns[column] = values
    pq.write_table(pa.table(columns), file)
    with pytest.raises(DataError, match=f"{file}: {message}"):
        _load(tmp_path, "cifar10")


def test_two_parquet_files_raise(tmp_path: Path) -> None:
    file = _write_parquet(tmp_path / "data" / "cifar10", "cifar10")
    (file.parent / "cifar10.parquet").write_bytes(file.read_bytes())
    with pytest.raises(DataError, match=r"has cifar10\.parquet, cifar10_subset\.parquet; keep only one of them"):
        _load(tmp_path, "cifar10")


@pytest.mark.parametrize(
    ("name", "options", "classes", "title"),
    [
        ("cifar10", {}, 10, "CIFAR-10"),
        ("cifar100", {}, 100, "CIFAR-100, fine labels"),
        ("cifar100", {"labels": "coarse"}, 20, "CIFAR-100, coarse labels"),
    ],
)
@pytest.mark.usefixtures("few_writers")
def test_the_stand_in_has_all_classes_and_says_so(
    tmp_path: Path, generated: Path, name: Name, options: dict[str, str], classes: int, title: str
) -> None:
    _write_parquet(tmp_path / "data" / name, name)
    dataset = _load(tmp_path, name, "generated", generated, **options)
    assert dataset.train.x.shape[1:] == (32, 32, 3)
    assert set(dataset.train.y.tolist()) == set(range(classes))
    assert dataset.num_classes == classes
    assert dataset.provenance.source == "generated"
    start = f"Stand-in for {title} (generated coloured digits), not real data: data.source is 'generated'; leave it"
    assert dataset.provenance.description.startswith(start)


@pytest.mark.usefixtures("few_writers")
def test_coarse_and_fine_labels_of_the_stand_in_agree(tmp_path: Path, generated: Path) -> None:
    fine = _load(tmp_path, "cifar100", "generated", generated)
    coarse = _load(tmp_path, "cifar100", "generated", generated, labels="coarse")
    np.testing.assert_array_equal(fine.train.y // 5, coarse.train.y)
    np.testing.assert_array_equal(np.asarray(fine.train.x), np.asarray(coarse.train.x))


@pytest.mark.slow
def test_real_cifar10_subset_is_balanced(data_dir: Path, tmp_path: Path) -> None:
    dataset = cifar.load_cifar10("files", data_dir, tmp_path, 0)
    assert dataset.train.x.shape == (20000, 32, 32, 3)
    assert np.bincount(dataset.train.y).tolist() == [2000] * 10
    assert np.bincount(dataset.test.y).tolist() == [500] * 10
    assert "a subset: 20000 training and 5000 test images" in dataset.provenance.description
    # Near the published means of CIFAR-10's channels: .491 .482 .447.
    means = np.asarray(dataset.train.x).mean((0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.491, 0.482, 0.447], atol=0.005)


@pytest.mark.slow
def test_real_cifar100_fine_classes_have_one_coarse_class_each(data_dir: Path, tmp_path: Path) -> None:
    fine, coarse = (cifar.load_cifar100("files", data_dir, tmp_path, 0, labels) for labels in ("fine", "coarse"))
    assert np.bincount(fine.train.y).tolist() == [200] * 100
    assert np.bincount(coarse.train.y).tolist() == [1000] * 20
    pairs = set(zip(fine.train.y.tolist(), coarse.train.y.tolist(), strict=True))
    assert len(pairs) == 100
    # From the published table: beaver and whale are aquatic mammals, oak and willow are trees.
    assert {(4, 0), (95, 0), (52, 17), (96, 17)} <= pairs
