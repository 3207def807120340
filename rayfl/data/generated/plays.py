"""Generated plays: sentences of a small grammar, with any number of roles.

Roles differ in length and in style (preferred words and kinds of sentence). The text of a role depends only on the
seed, its number and the minimum length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from rayfl.data.sources.stand_in import check_memory
from rayfl.streams import stream

FORMAT = 1
"""Increases whenever the same seed produces different text."""

DEFAULT_ROLES = 100

_LINES = """
call: O, Alas, Nay, Marry, Come, Peace, Fie, Hark, Good my lord, Sweet lady, Gentle friend, Villain
who: I, thou, he, she, we, they, the king, my lord, the fool, thy brother, a soldier, the queen, fortune, the night
verb: love, hate, fear, seek, know, leave, serve, praise, curse, follow, forget, behold, deny, defend, mourn, mock
must: must, shall, will, may, would, should, cannot, dare not, did, might never, hath sworn to, is come to
kind: sweet, false, noble, bloody, gentle, cruel, weary, foolish, golden, bitter, honest, proud, silent, wild
thing: heart, sword, crown, night, grave, letter, dream, storm, rose, promise, name, sorrow, tongue, battle, ship, moon
whose: my, thy, his, her, our, the, this, that, no, a poor man's, your, some
where: in Rome, by the sea, at the gate, before dawn, till death, in Venice, with tears, for ever, tonight
"""
_WORDS = {kind: words.split(", ") for kind, words in (line.split(": ") for line in _LINES.strip().splitlines())}

_SENTENCES = (
    "{who} {must} {verb} {whose} {thing}",
    "{call}, {who} {must} {verb} {whose} {kind} {thing} {where}",
    "{whose} {thing} {must} {verb} {who}",
    "{call}! {who} {must} {verb} {whose} {thing}, and {verb} {whose} {kind} {thing}",
    "if {who} {must} {verb} {whose} {kind} {thing}, then {who} {must} {verb}",
    "where {must} {who} {verb} {whose} {thing} {where}",
    "{kind} {thing}, {kind} {thing}; {who} {must} {verb} {where}",
    "what {kind} {thing} {must} {verb} {whose} {thing}",
)
_SLOT = re.compile(r"\{(\w+)\}")
_ENDS = (". ", "! ", "? ", "; ", ": ")
_AT_A_TIME = 50


def generate(seed: int, roles: int, shortest: int) -> dict[str, str]:
    """Text by role, with at least `shortest` characters and 1500 more on average.

    Raises:
        ScenarioError: It does not fit into memory.
    """
    check_memory(roles, shortest + 1500)
    return {f"ROLE_{number:06d}": _text(stream(seed, "generate", number), shortest) for number in range(roles)}


def _text(rng: np.random.Generator, shortest: int) -> str:
    length = shortest + round(rng.gamma(1.5, 1000))
    liked = {kind: _style(rng, len(words)) for kind, words in _WORDS.items()}
    sentences, ends = _style(rng, len(_SENTENCES)), _style(rng, len(_ENDS))
    text = ""
    while len(text) < length:
        chosen = rng.choice(_SENTENCES, _AT_A_TIME, p=sentences).tolist()
        words = {
            kind: iter(rng.choice(_WORDS[kind], sum(s.count(f"{{{kind}}}") for s in chosen), p=liked[kind]).tolist())
            for kind in _WORDS
        }
        for sentence, end in zip(chosen, rng.choice(_ENDS, _AT_A_TIME, p=ends), strict=True):
            spoken = _SLOT.sub(partial(_next_word, words), sentence)
            text += spoken[0].upper() + spoken[1:] + end
    return text[:length]


def _style(rng: np.random.Generator, choices: int) -> np.ndarray:
    return rng.dirichlet(np.full(choices, 0.7))


def _next_word(words: Mapping[str, Iterator[str]], slot: re.Match[str]) -> str:
    return next(words[slot[1]])
