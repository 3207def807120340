"""Sent140: the sentiment of tweets, with one natural client per user.

Go, Bhayani and Huang, "Twitter Sentiment Classification using Distant Supervision", 2009, in the form of LEAF: 1.6
million tweets of 660 thousand users, labelled by the emoticons that were removed from them.

Texts become token numbers with a tokenizer of `transformers`. Requires rayfl[text]. The stand-in is generated tweets:
short texts that praise or complain, by users who like some words more than others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.files import FileDigest, read_file
from rayfl.data.formats.leaf import find_leaf, read_users
from rayfl.data.inputs import Fields
from rayfl.data.sources.stand_in import Source, check_memory, files_or_generated
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream

_FILES = ("tokenizer.json", "vocab.txt")
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "config.json")


def tokenized(texts: Sequence[str], folder: Path, length: int) -> tuple[Fields, list[FileDigest]]:
    """Tokenizes texts for a network of `transformers`, truncated or padded to one length.

    Args:
        texts: At least one.
        folder: Folder of a tokenizer, as written by `save_pretrained`.
        length: Tokens per text, including special ones.

    Returns:
        `input_ids` [n, length] int32 and `attention_mask` [n, length] bool, false for padding; and the digests of the
        tokenizer files.

    Raises:
        ScenarioError: `transformers` is not installed.
        DataError: The folder has no tokenizer, or the tokenizer cannot be read or has no padding.
    """
    if not any((folder / name).is_file() for name in _FILES):
        raise DataError(
            f"data.options.tokenizer: {folder} has no tokenizer ({' or '.join(_FILES)}); give the folder of a "
            "DistilBERT with its tokenizer"
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ScenarioError("data.options.tokenizer: needs transformers; pip install 'rayfl[text]'") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        encoded = tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=length, return_attention_mask=True
        )
    except Exception as error:  # its exceptions have no common base class
        cause = " ".join(str(error).split())
        raise DataError(f"data.options.tokenizer: {folder} has no usable tokenizer ({cause})") from error
    files = [read_file(folder / name)[1] for name in (*_FILES, *_SETTINGS) if (folder / name).is_file()]
    return fields(np.array(encoded["input_ids"], np.int32), np.array(encoded["attention_mask"], bool)), files


def fields(numbers: np.ndarray, read: np.ndarray) -> Fields:
    """Inputs of a network of `transformers`: token numbers and the attention mask, both [n, length]."""
    return Fields({"input_ids": numbers, "attention_mask": read})


DEFAULT_USERS = 200
MOST = 12
"""Maximum number of tweets per user."""

_MISLEADING = 0.1
_BYTES = 200
"""Of a tweet as an object, with about 40 characters."""
_LINES = """
opening: just got home, today, still at work, my phone, the weather, this song, monday, coffee, that film, new episode
praise: love it, so happy, feeling great, best day ever, thank you all, awesome, what a win, cannot wait
complaint: hate it, so sad, feeling sick, worst day ever, miss you all, awful, what a loss, cannot sleep
ending: lol, again, right now, with friends, and more to come, ugh, haha, on the bus, as always, you know
"""
_PHRASES = {kind: words.split(", ") for kind, words in (line.split(": ") for line in _LINES.strip().splitlines())}


@dataclass(frozen=True)
class Tweet:
    """A tweet; `positive` is its label, which a tenth of the texts contradict."""

    user: int
    text: str
    positive: bool
    is_test: bool


def generate(seed: int, users: int) -> list[Tweet]:
    """The tweets of users 0, 1, ...: two to `MOST` of each, a fifth of them (at least one) for testing.

    Raises:
        ScenarioError: They do not fit into memory.
    """
    check_memory(users, (2 + MOST) // 2 * _BYTES)
    return [tweet for user in range(users) for tweet in _of_user(stream(seed, "generate", user), user)]


def generated_words() -> dict[str, int]:
    """Numbers of all words, starting at 1; 0 is padding."""
    words = {word for phrases in _PHRASES.values() for phrase in phrases for word in phrase.split()}
    return {word: number for number, word in enumerate(sorted(words), start=1)}


def _of_user(rng: np.random.Generator, user: int) -> list[Tweet]:
    number = int(rng.integers(2, MOST, endpoint=True))
    mood = rng.beta(2, 2)
    liked = {kind: rng.dirichlet(np.full(len(phrases), 0.7)) for kind, phrases in _PHRASES.items()}
    tweets = []
    for place in range(number):
        positive = bool(rng.random() < mood)
        praises = positive != bool(rng.random() < _MISLEADING)
        kinds = ("opening", "praise" if praises else "complaint", "ending")
        phrases = [_PHRASES[kind][int(rng.choice(len(liked[kind]), p=liked[kind]))] for kind in kinds]
        tweets.append(Tweet(user, " ".join(phrases), positive, place < max(1, number // 5)))
    return tweets


Texts = tuple[list[str], list[int]]
"""Tweets of one user, and 1 for each positive or 0 for each negative one."""


def load(
    source: Source,
    data_dir: Path,
    seed: int,
    tokenizer: Path | None = None,
    length: Annotated[int, Field(ge=8, le=512)] = 64,
    clients: int | None = None,
) -> Dataset:
    """Reads Sent140 with all its users from files, or generates tweets instead.

    Looks in `data_dir`/sent140 for JSON of LEAF (train/ and test/, or data/ with both), in which a tweet is
    [id, date, query, user, text].

    Args:
        source: "files" reads the files or fails; "generated" makes `clients` users (200 if None); "auto" reads the
            files if it finds any and otherwise generates.
        tokenizer: Folder of a DistilBERT with its tokenizer. Optional for generated tweets, whose words are then
            numbered.
        length: Tokens per tweet, including special ones; longer tweets are truncated.

    Returns:
        x by name, `input_ids` [n, length] int32 and `attention_mask` [n, length] bool; y [n] int64, 1 for positive;
        natural clients in the order of sorted users.

    Raises:
        ScenarioError: There is no tokenizer for real tweets, or `transformers` is not installed.
        DataError: `source` is "files" and there are none, a file is damaged (named), or there is no tokenizer in the
            folder.
    """
    folder = data_dir / "sent140"
    return files_or_generated(
        source,
        title="Sent140",
        kind="tweets",
        folders=[folder],
        looked_for="train/*.json with test/*.json, and the same under data/",
        get=f"get it with LEAF's data/sent140/preprocess.sh and copy its output to {folder}",
        read=lambda: _read(folder, tokenizer, length),
        generate=lambda: _generated(seed, clients, tokenizer, length),
    )


def _read(folder: Path, tokenizer: Path | None, length: int) -> Dataset | None:
    leaf = find_leaf(folder)
    if leaf is None:
        return None
    if tokenizer is None:
        raise ScenarioError(
            "data.options.tokenizer: required for real tweets; give the folder of a DistilBERT with its tokenizer"
        )
    users = read_users(leaf, _tweets)
    x, files = tokenized(
        [text for part in (users.train, users.test) for texts, _ in part for text in texts], tokenizer, length
    )
    description = f"Sent140, LEAF's files and split, {len(users.names)} users; {length} tokens by {tokenizer.name}"
    provenance = Provenance("files", description, (*users.files, *files))
    labels = [[label for _, of_user in part for label in of_user] for part in (users.train, users.test)]
    owners = [np.repeat(np.arange(len(part)), [len(texts) for texts, _ in part]) for part in (users.train, users.test)]
    return _dataset(x, labels, owners, users.names, provenance)


def _tweets(file: Path, user: str, data: Any) -> Texts:
    """Parses the tweets of one user."""
    try:
        texts = [str(text) for _id, _date, _query, _user, text in data["x"]]
        labels = [int(label) for label in data["y"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{file}: user '{user}' needs 'x' with [id, date, query, user, text] for each tweet, and 'y'"
        ) from error
    if len(texts) != len(labels):
        raise DataError(f"{file}: user '{user}' has {len(texts)} tweets but {len(labels)} labels")
    if set(labels) - {0, 1}:
        raise DataError(f"{file}: user '{user}' has labels other than 0 and 1")
    return texts, labels


def _generated(seed: int, clients: int | None, tokenizer: Path | None, length: int) -> Dataset:
    users = DEFAULT_USERS if clients is None else clients
    every = generate(seed, users)
    parts = [[tweet for tweet in every if tweet.is_test == is_test] for is_test in (False, True)]
    texts = [tweet.text for part in parts for tweet in part]
    x = _numbered(texts, length) if tokenizer is None else tokenized(texts, tokenizer, length)[0]
    how = "one number per word" if tokenizer is None else f"tokens by {tokenizer.name}"
    provenance = Provenance(
        "generated", f"Praise and complaints of {users} users, seed {seed}; {how}, at most {length}"
    )
    labels = [[int(tweet.positive) for tweet in part] for part in parts]
    owners = [np.array([tweet.user for tweet in part]) for part in parts]
    return _dataset(x, labels, owners, [f"user_{number:06}" for number in range(users)], provenance)


def _numbered(texts: Sequence[str], length: int) -> Fields:
    vocabulary = generated_words()
    numbers = np.zeros((len(texts), length), np.int32)
    for row, text in zip(numbers, texts, strict=True):
        words = [vocabulary[word] for word in text.split()][:length]
        row[: len(words)] = words
    return fields(numbers, numbers > 0)


def _dataset(
    x: Fields,
    labels: Sequence[Sequence[int]],
    owners: Sequence[np.ndarray],
    names: Sequence[str],
    provenance: Provenance,
) -> Dataset:
    """Builds the data set; the first inputs are for training."""
    rows = np.split(np.arange(len(x)), [len(labels[0])])
    train, test = (Samples(x.take(part), np.array(y, np.int64)) for part, y in zip(rows, labels, strict=True))
    shards = (Shards.by_owner(owner, len(names)) for owner in owners)
    return Dataset("sent140", train, test, 2, provenance, NaturalClients(tuple(names), *shards))
