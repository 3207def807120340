"""Sent140: files of LEAF, tokens, the stand-in, and errors in the files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data.inputs import Fields
from rayfl.data.sources import sent140 as tweets
from rayfl.data.sources.sent140 import load
from rayfl.errors import DataError, ScenarioError
from rayfl.models.text import DistilBert

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "so", "happy", "sad", "##der", "today", "!"]
TWEETS = {
    "train": {"zoe": [("so happy today!", 1), ("sadder", 0)], "amy": [("Sad", 0)]},
    "test": {"zoe": [("HAPPY", 1)], "amy": [("so so so so so so so so so so so so", 1)]},
}


def write_leaf(folder: Path, change: Any = None) -> None:
    for split, users in TWEETS.items():
        data: dict[str, Any] = {}
        for user, said in users.items():
            x = [[str(number), "Mon", "NO_QUERY", user, text] for number, (text, _) in enumerate(said)]
            data[user] = {"x": x, "y": [label for _, label in said]}
        if change:
            change(data)
        file = folder / "sent140" / split / f"all_data_0_niid_{split}_9.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        numbers = [len(said) for said in users.values()]
        file.write_text(json.dumps({"users": list(users), "num_samples": numbers, "user_data": data}))


def write_tokenizer(folder: Path) -> Path:
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "distilbert", "vocab_size": len(VOCABULARY)}))
    return folder


def words(x: Fields, row: int) -> list[str]:
    ids, read = (np.asarray(x.arrays[name]) for name in ("input_ids", "attention_mask"))
    assert (ids[row][~read[row]] == 0).all()
    return [VOCABULARY[number] for number in ids[row][read[row]]]


def test_tweets_labels_and_users_are_those_of_the_files(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="rayfl[text] is not installed")
    write_leaf(tmp_path)
    data = load("files", tmp_path, 0, tokenizer=write_tokenizer(tmp_path / "distilbert"), length=8)
    assert data.natural is not None
    assert data.natural.names == ("amy", "zoe")
    assert [data.natural.train[client].tolist() for client in (0, 1)] == [[0], [1, 2]]
    assert data.natural.test is not None
    assert [data.natural.test[client].tolist() for client in (0, 1)] == [[0], [1]]
    assert (data.train.y.tolist(), data.test.y.tolist(), data.num_classes) == ([0, 1, 0], [1, 1], 2)
    assert words(data.train.x, 0) == ["[CLS]", "sad", "[SEP]"]
    assert words(data.train.x, 1) == ["[CLS]", "so", "happy", "today", "!", "[SEP]"]
    assert words(data.train.x, 2) == ["[CLS]", "sad", "##der", "[SEP]"]
    assert words(data.test.x, 0) == ["[CLS]", *["so"] * 6, "[SEP]"], "cut off"
    assert words(data.test.x, 1) == ["[CLS]", "happy", "[SEP]"]
    files = [Path(file).name for file, _ in data.provenance.files]
    assert files == ["all_data_0_niid_train_9.json", "all_data_0_niid_test_9.json", "vocab.txt", "config.json"]


def test_real_tweets_need_a_tokenizer(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    with pytest.raises(ScenarioError, match=r"data\.options\.tokenizer: required for real tweets; give the fol"):
        load("files", tmp_path, 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no tokenizer \(tokenizer\.json or vocab\.txt\); give the folder"):
        load("files", tmp_path, 0, tokenizer=tmp_path / "empty")


def test_without_transformers_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    write_leaf(tmp_path)
    with pytest.raises(ScenarioError, match=r"tokenizer: needs transformers; pip install 'rayfl\[text\]'"):
        load("files", tmp_path, 0, tokenizer=write_tokenizer(tmp_path / "distilbert"))
    with pytest.raises(ScenarioError, match=r"model 'distilbert': needs transformers; pip install 'rayfl\[text\]'"):
        DistilBert()


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="rayfl[text] is not installed")
    write_leaf(tmp_path)
    folder = write_tokenizer(tmp_path / "distilbert")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match=r"distilbert has no usable tokenizer \("):
        load("files", tmp_path, 0, tokenizer=folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["zoe"].pop("x"), r"user 'zoe' needs 'x' with \[id, date, query, user, text\]"),
        (lambda data: data["amy"]["x"][0].pop(), r"user 'amy' needs 'x' with \[id, date, query, user, text\]"),
        (lambda data: data["zoe"]["y"].append(1), r"user 'zoe' has 2 tweets but 3 labels"),
        (lambda data: data["amy"].update(y=[4]), r"user 'amy' has labels other than 0 and 1"),
    ],
)
def test_bad_files_are_named(change: Any, message: str, tmp_path: Path) -> None:
    write_leaf(tmp_path, change)
    with pytest.raises(DataError, match=r"all_data_0_niid_train_9\.json: " + message):
        load("files", tmp_path, 0, tokenizer=tmp_path)


def test_missing_files_are_an_error_or_generated(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Sent140 not found: looked in .*sent140 for train/\*\.json"):
        load("files", tmp_path, 0)
    made, again, other = (load("auto", tmp_path, seed, clients=20) for seed in (3, 3, 4))
    assert made.natural is not None
    assert made.natural.test is not None
    assert len(made.natural.names) == 20
    assert min(made.natural.train.sizes.min(), made.natural.test.sizes.min()) > 0
    ids = [np.asarray(data.train.x.arrays["input_ids"]) for data in (made, again, other)]
    assert np.array_equal(ids[0], ids[1])
    assert not np.array_equal(ids[0][:20], ids[2][:20])
    assert np.array_equal(np.asarray(made.train.x.arrays["attention_mask"]), ids[0] > 0)
    assert ids[0].max() <= len(tweets.generated_words())
    assert "Stand-in for Sent140 (generated tweets), not real data" in made.provenance.description


def test_nine_in_ten_generated_tweets_agree_with_their_label() -> None:
    every = tweets.generate(0, 200)
    praise = [
        any(word in tweet.text for word in ("love", "happy", "great", "best day", "thank", "awesome", "win", "wait"))
        for tweet in every
    ]
    agreeing = np.mean([says == tweet.positive for says, tweet in zip(praise, every, strict=True)])
    assert 0.85 < agreeing < 0.95
    assert 0.4 < np.mean([tweet.positive for tweet in every]) < 0.6
