"""JSON of LEAF: merged, sorted, exact, and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data.formats.leaf import find_leaf, read_leaf
from rayfl.errors import DataError
from tests.data.leaf_files import USERS, leaf_split, write_leaf

TRAIN = "train/all_data_0_niid_05_keep_0_train_9.json"


def test_files_are_merged_and_writers_sorted(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    written, _ = read_leaf(tmp_path)
    assert written.names == tuple(sorted(USERS))
    assert np.bincount(written.writer[~written.is_test]).tolist() == [4, 4, 4]
    assert np.bincount(written.writer[written.is_test]).tolist() == [2, 2, 2]


def test_pixels_and_labels_are_those_of_the_file(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    written, _ = read_leaf(tmp_path)
    for user, content, is_test in (
        ("f0000_14", leaf_split(USERS[:2], 4, 0), False),
        ("f0002_03", leaf_split(USERS[2:], 4, 1), False),
        ("f0001_02", leaf_split(USERS, 2, 2), True),
    ):
        rows = (written.writer == written.names.index(user)) & (written.is_test == is_test)
        data = content["user_data"][user]
        assert written.labels[rows].tolist() == data["y"]
        expected = [[round(value * 255) for value in image] for image in data["x"]]
        assert written.images[rows].reshape(-1, 784).tolist() == expected


def test_one_is_white_paper_and_zero_is_ink(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        data = {"users": ["a"], "user_data": {"a": {"x": [[1.0] * 783 + [0.0]], "y": [0]}}}
        (tmp_path / split / "x.json").write_text(json.dumps(data))
    images = read_leaf(tmp_path)[0].images
    assert images[0].reshape(-1)[[0, 782, 783]].tolist() == [255, 255, 0]


def test_digest_of_every_file_is_given(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    _, digests = read_leaf(tmp_path)
    files = sorted((tmp_path / "train").iterdir()) + sorted((tmp_path / "test").iterdir())
    assert digests == tuple((str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)


def test_found_in_the_folder_or_its_data_subfolder(tmp_path: Path) -> None:
    assert find_leaf(tmp_path) is None
    write_leaf(tmp_path / "data")
    assert find_leaf(tmp_path) == tmp_path / "data"
    assert find_leaf(tmp_path / "data") == tmp_path / "data"


def _change(user: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["user_data"][user].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("users"), "needs 'users' and 'user_data', as LEAF writes them"),
        (lambda content: content["users"].pop(), "'users' and the keys of 'user_data' differ"),
        (lambda content: content["user_data"]["f0001_02"].pop("y"), "user 'f0001_02' needs 'x' with 784 numbers"),
        (_change("f0001_02", x=[[0.5] * 783]), "user 'f0001_02' needs 'x' with 784 numbers per image, and 'y'"),
        (_change("f0001_02", x=[["a"] * 784]), "user 'f0001_02' needs 'x' with 784 numbers per image, and 'y'"),
        (_change("f0001_02", y=[1, 2, 3]), "user 'f0001_02' has 4 images but 3 labels"),
        (_change("f0001_02", x=[[255.0] * 784] * 4), r"user 'f0001_02' has pixels outside 0\.\.1"),
        (_change("f0001_02", x=[[float("nan")] * 784] * 4), r"user 'f0001_02' has pixels outside 0\.\.1"),
        (_change("f0001_02", y=[0, 1, 2, 62]), r"user 'f0001_02' has labels other than integers in 0\.\.61"),
        (_change("f0001_02", y=[0, 1, 2, 0.5]), r"user 'f0001_02' has labels other than integers in 0\.\.61"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    write_leaf(tmp_path)
    content = json.loads((tmp_path / TRAIN).read_text())
    change(content)
    (tmp_path / TRAIN).write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"{tmp_path / TRAIN}: {message}"):
        read_leaf(tmp_path)


@pytest.mark.parametrize("content", [b"", b'{"users": ["f00', b"\xff\xfe\x00"])
def test_truncated_json_is_named(tmp_path: Path, content: bytes) -> None:
    write_leaf(tmp_path)
    (tmp_path / TRAIN).write_bytes(content)
    with pytest.raises(DataError, match=f"{tmp_path / TRAIN}: cannot be read as JSON, truncated"):
        read_leaf(tmp_path)


def test_json_other_than_an_object_is_named(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    (tmp_path / TRAIN).write_text("[1, 2]")
    with pytest.raises(DataError, match=f"{tmp_path / TRAIN}: needs 'users' and 'user_data'"):
        read_leaf(tmp_path)


def test_train_and_test_must_have_the_same_users(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    (tmp_path / TRAIN).unlink()
    message = "train and test must have the same users, but 'f0000_14' is only in test"
    with pytest.raises(DataError, match=f"{tmp_path}: {message}"):
        read_leaf(tmp_path)


def test_user_in_two_files_of_a_split_raises(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    later = tmp_path / "train" / "later.json"
    later.write_text((tmp_path / TRAIN).read_text())
    with pytest.raises(DataError, match=f"{later}: user 'f0001_02' is also in another file of {tmp_path / 'train'}"):
        read_leaf(tmp_path)


def test_train_without_test_raises(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    for file in (tmp_path / "test").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=f"{tmp_path / 'test'}: has no .json files; LEAF data needs both"):
        read_leaf(tmp_path)
