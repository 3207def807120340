"""Generated tweets: short texts that praise or complain, by users who like some words more than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rayfl.data.generated.memory import check_memory
from rayfl.streams import stream

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


def vocabulary() -> dict[str, int]:
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
        said = [_PHRASES[kind][int(rng.choice(len(liked[kind]), p=liked[kind]))] for kind in kinds]
        tweets.append(Tweet(user, " ".join(said), positive, place < max(1, number // 5)))
    return tweets
