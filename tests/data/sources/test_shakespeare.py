"""Shakespeare: windows by role, split in order with a gap, from three kinds of files or from a stand-in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.config.data import Data
from rayfl.config.registry import call_with_options
from rayfl.data.dataset import Dataset
from rayfl.data.generated import plays as generated_plays
from rayfl.data.inputs import TextWindows
from rayfl.data.sources import shakespeare
from rayfl.data.sources.next_character import VOCABULARY, encoded, split
from rayfl.data.store import build_store
from rayfl.errors import DataError, ScenarioError


def _text(seed: int, length: int) -> str:
    letters = np.random.default_rng(seed).choice(list("abcdefgh,.ABC"), length - 1)
    return "".join(letters) + " "


TEXTS = {"P_A": _text(0, 1500), "P_B": _text(1, 900), "P_C": _text(2, 800), "P_D": _text(3, 60)}
"""At a share of 0.9, all but the first two are too short for a test window."""


def _write_parquet(data_dir: Path, name: str = "shakespeare.parquet") -> Path:
    (data_dir / "shakespeare").mkdir(parents=True, exist_ok=True)
    columns = {
        "play": ["P"] * 4,
        "role": [name[2:] for name in TEXTS],
        "text": [f"{text[:10]}\n\n{text[10:-1]}" for text in TEXTS.values()],
    }
    file = data_dir / "shakespeare" / name
    pq.write_table(pa.table(columns), file)
    return file


def _as_read(name: str) -> str:
    return f"{TEXTS[name][:10]} {TEXTS[name][10:]}"


def _write_leaf(data_dir: Path, share: float) -> list[Path]:
    parts: dict[str, dict[str, dict[str, list[str]]]] = {"train": {}, "test": {}}
    for name in ("P_B", "P_A"):
        windows = [TEXTS[name][i : i + 81] for i in range(len(TEXTS[name]) - 80)]
        k = int(share * len(windows))
        for part, chosen in (("train", windows[:k]), ("test", windows[k + 79 :])):
            parts[part][name] = {"x": [w[:80] for w in chosen], "y": [w[80] for w in chosen]}
    files = []
    for part, users in parts.items():
        file = data_dir / "shakespeare" / part / f"all_data_niid_0_keep_0_{part}_9.json"
        file.parent.mkdir(parents=True)
        counts = [len(user["y"]) for user in users.values()]
        content = {"users": list(users), "num_samples": counts, "user_data": users, "hierarchies": ["P", "P"]}
        file.write_text(json.dumps(content))
        files.append(file)
    return files


def _load(data_dir: Path, source: str = "files", clients: int | None = None, **options: Any) -> Dataset:
    given = {"source": source, "data_dir": data_dir, "seed": 0, "clients": clients}
    dataset: Dataset = call_with_options(shakespeare.load, options, given, "data.options")
    return dataset


def _of(dataset: Dataset, client: int, part: str) -> list[tuple[str, str]]:
    """The windows and targets of a client, as text."""
    assert dataset.natural is not None
    shards, samples = getattr(dataset.natural, part), getattr(dataset, part)
    rows = shards[client]
    windows = ["".join(VOCABULARY[symbol] for symbol in window) for window in samples.x[rows]]
    return list(zip(windows, (VOCABULARY[symbol] for symbol in samples.y[rows]), strict=True))


def _expected(text: str, share: float) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    windows = [(text[i : i + 80], text[i + 80]) for i in range(len(text) - 80)]
    k = int(share * len(windows))
    return windows[:k], windows[k + 79 :]


def test_the_vocabulary_matches_leaf() -> None:
    assert len(VOCABULARY) == 80
    assert "".join(sorted(VOCABULARY)) == VOCABULARY
    assert (VOCABULARY.index("0"), VOCABULARY.index("A"), VOCABULARY.index("a"), VOCABULARY[-1]) == (11, 25, 53, "}")


def test_characters_outside_the_vocabulary_become_a_space() -> None:
    assert encoded("a$é€😀\ud800b").tolist() == [53, 1, 1, 1, 1, 1, 54]


@pytest.mark.parametrize("share", [0.9, 0.8])
def test_windows_of_every_role_are_split_in_order_with_a_gap(tmp_path: Path, share: float) -> None:
    file = _write_parquet(tmp_path)
    dataset = _load(tmp_path, train_share=share)
    assert dataset.natural is not None
    names = [name for name in TEXTS if len(_expected(_as_read(name), share)[1])]
    assert dataset.natural.names == tuple(names)
    assert len(names) == (2 if share == 0.9 else 3)
    for client, name in enumerate(names):
        train, test = _expected(_as_read(name), share)
        assert _of(dataset, client, "train") == train
        assert _of(dataset, client, "test") == test
    assert dataset.provenance.files == ((str(file), hashlib.sha256(file.read_bytes()).hexdigest()),)
    assert f"shakespeare.parquet, not LEAF's edition; split in order, {share:g} for" in dataset.provenance.description


def test_windows_are_not_copied(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    dataset = _load(tmp_path)
    for samples in (dataset.train, dataset.test):
        assert isinstance(samples.x, TextWindows)
        assert samples.x.starts.dtype == np.int32
        assert samples.y.dtype == np.uint8
    assert dataset.train.x.text is dataset.test.x.text


def test_leaf_files_keep_the_split_of_leaf(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    files = _write_leaf(tmp_path, 0.9)
    dataset = _load(tmp_path, "auto")
    assert dataset.natural is not None
    assert dataset.natural.names == ("P_A", "P_B")
    for client, name in enumerate(dataset.natural.names):
        assert (_of(dataset, client, "train"), _of(dataset, client, "test")) == _expected(TEXTS[name], 0.9)
    assert [path for path, _ in dataset.provenance.files] == [str(file) for file in files]
    assert "LEAF's files and split" in dataset.provenance.description


def test_a_share_for_leaf_files_raises(tmp_path: Path) -> None:
    _write_leaf(tmp_path, 0.9)
    with pytest.raises(ScenarioError, match=r"data\.options\.train_share: LEAF's files in .* are already split; leave"):
        _load(tmp_path, train_share=0.8)


def test_a_damaged_leaf_file_is_named(tmp_path: Path) -> None:
    file = _write_leaf(tmp_path, 0.9)[1]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DataError, match=f"{file}: cannot be read as JSON, truncated"):
        _load(tmp_path)


def test_gutenberg_text_takes_precedence_over_parquet(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    text, author = "\n".join(f"    {TEXTS['P_A'][:-1]}" for _ in range(3)), "by William Shakespeare"
    content = f"x\n{author}\n\nA PLAY\n\n{author}\n  KING. o\n{text}\n  FOOL. a\n{text}\n"
    (tmp_path / "shakespeare" / "100.txt").write_text(content)
    dataset = _load(tmp_path)
    assert dataset.natural is not None
    assert dataset.natural.names == ("A_PLAY_FOOL", "A_PLAY_KING")
    assert "Project Gutenberg's edition as LEAF parses it" in dataset.provenance.description


def test_cropped_roles_have_consecutive_windows_and_a_fifth_as_many_for_testing(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    dataset = _load(tmp_path, crop=250)
    assert dataset.natural is not None
    assert dataset.natural.names == ("P_A",)
    assert dataset.natural.test is not None
    assert (dataset.natural.train.sizes.tolist(), dataset.natural.test.sizes.tolist()) == ([250], [50])
    for part, every in zip(("train", "test"), _expected(_as_read("P_A"), 0.9), strict=True):
        first = every.index(_of(dataset, 0, part)[0])
        assert _of(dataset, 0, part) == every[first : first + len(_of(dataset, 0, part))]
        assert first > 0
    again = _load(tmp_path, crop=250)
    np.testing.assert_array_equal(again.train.y, dataset.train.y)


def test_roles_that_are_all_too_short_are_an_error(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    with pytest.raises(
        DataError, match=r"no role has enough text .*; choose a smaller data\.options\.crop or train_share"
    ):
        _load(tmp_path, crop=2000)


@pytest.mark.parametrize("length", [0, 80, 81, 82])
def test_the_shortest_texts_have_at_most_a_training_window(length: int) -> None:
    role = split("r", "a" * length, 0.9)
    assert len(role.train) == (length > 80)
    assert len(role.test) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_share": 1.0}, r"data\.options\.train_share: .*less than 1"),
        ({"croped": 1}, r"data\.options\.croped: not an option .*did you mean 'crop'\?"),
    ],
)
def test_impossible_options_raise(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, "generated", **options)


def test_two_parquet_files_raise(tmp_path: Path) -> None:
    _write_parquet(tmp_path)
    _write_parquet(tmp_path, "shakespeare_roles.parquet")
    with pytest.raises(DataError, match=r"has shakespeare\.parquet, shakespeare_roles\.parquet; keep only one of them"):
        _load(tmp_path)


def test_without_files_the_message_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        _load(tmp_path)
    assert str(raised.value).startswith(f"Shakespeare not found: looked in {tmp_path / 'shakespeare'} for train/*.json")
    assert f"with 100.txt unpacked in {tmp_path / 'shakespeare'}" in str(raised.value)


@pytest.mark.parametrize(("clients", "options"), [(None, {}), (3, {"crop": 2000, "train_share": 0.8})])
def test_the_stand_in_says_so_and_loses_no_role(tmp_path: Path, clients: int | None, options: dict[str, Any]) -> None:
    dataset = _load(tmp_path, "auto", clients, **options)
    assert dataset.natural is not None
    assert len(dataset.natural.names) == (clients or generated_plays.DEFAULT_ROLES)
    assert dataset.provenance.source == "generated"
    assert dataset.provenance.description.startswith(
        "Stand-in for Shakespeare (generated text), not real data: no files"
    )
    assert f"with 100.txt unpacked in {tmp_path / 'shakespeare'}" in dataset.provenance.description


def test_generated_roles_differ_in_style_and_depend_on_seed_and_number_alone() -> None:
    few, many = generated_plays.generate(0, 2, 1000), generated_plays.generate(0, 4, 1000)
    assert list(many.items())[:2] == list(few.items())
    assert generated_plays.generate(1, 2, 1000) != few
    assert min(map(len, many.values())) >= 1000
    assert set("".join(many.values())) <= set(VOCABULARY)
    loves = [text.count("love") / len(text) for text in generated_plays.generate(0, 20, 20000).values()]
    assert max(loves) > 5 * np.median(loves), "some roles like a word that others do not"


def test_real_plays_have_about_as_many_roles_and_windows_as_in_leaf(data_dir: Path, tmp_path: Path) -> None:
    """LEAF: 1129 roles, 4226158 windows; CyclicFL: 660 clients with 5773 training windows on average."""
    store = build_store(Data(name="shakespeare", source="files"), 0, data_dir, tmp_path)
    assert abs(store.num_clients - 660) < 30
    assert abs(len(store.train) / store.num_clients - 5773) < 500
    assert isinstance(store.train.x, TextWindows)
    per_window = store.train.x.starts.itemsize + store.train.y.itemsize + store.train_shards.rows.itemsize
    assert per_window == 9, "bytes"
