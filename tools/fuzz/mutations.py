"""Damages files: bytes anywhere, and in files with tables also values, keys and whole branches."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

_HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1)
_DEEP: Any = 0
for _ in range(200):
    _DEEP = [_DEEP]
_ODD: Sequence[Any] = (
    "../canary", "link/canary",
    "", "none", "files", "a:b", "no.module:x", "../..", "/", "\0", "\ud800", "🦜", "x" * 5000, "1", "nan", [], {}, [[]],
    {"name": "x"}, [1, "2", None], None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1e308, 0.1, -0.5, float("nan"),
    float("inf"), _DEEP,
)  # fmt: skip


def mutated(path: Path, content: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """Damages the content of a file.

    Args:
        path: Its name determines the format.
        content: Content of a valid file.
        random: Source of randomness.
        others: Contents of other valid files, from which parts are spliced in.
    """
    tables = _TABLES.get(path.suffix)
    if path.name.startswith("round-") and random.random() < 0.7:
        return _signed_again(content, random)
    if tables and random.random() < 0.6:
        load, dump = tables
        try:
            return dump(_mutated_tree(load(content.decode()), random)).encode("utf-8", "surrogatepass")
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass  # the format cannot hold such a value
    for change in random.choices(_OF_BYTES, k=random.choice((1, 1, 1, 2, 4))):
        content = change(content, random, others)
    return content


def _flip(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(content)
    for _bit in range(random.randint(1, 8) if content else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncate(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _zero_the_end(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    """Zeroes the end, as a file system may after a power failure."""
    kept = random.randrange(len(content) + 1)
    return content[:kept] + bytes(len(content) - kept)


def _cut(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    first = random.randrange(len(content) + 1)
    return content[:first] + content[first + random.choice((1, 2, 4, 8, 64, 1000)) :]


def _repeat(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    first = random.randrange(len(content) + 1)
    return content[:first] + content[first : first + random.choice((1, 4, 64, 1000))] * 2 + content[first:]


def _splice(content: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    other = random.choice([*others, content])
    first, start = random.randrange(len(content) + 1), random.randrange(len(other) + 1)
    length = random.choice((1, 4, 16, 256, len(other)))
    return content[:first] + other[start : start + length] + content[first + random.choice((0, length)) :]


def _huge_number(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    """Writes a huge number where a size may be: as bytes in either order, as a varint, or in digits."""
    first, number = random.randrange(len(content) + 1), random.choice(_HUGE)
    kind = random.choice(("little", "big", "varint", "digits"))
    if kind == "digits":
        found = [place for place, byte in enumerate(content) if byte in b"0123456789"]
        first = random.choice(found) if found else first
        return content[:first] + str(number).encode() + content[first + 1 :]
    if kind == "varint":
        return content[:first] + b"\xff" * 8 + b"\x7f" + content[first + 1 :]
    size = 4 if number < 2**32 else 8
    written = number.to_bytes(size, "little" if kind == "little" else "big")
    return content[:first] + written + content[first + size :]


def _deep(content: bytes, random: Random, _: Sequence[bytes]) -> bytes:
    first, bracket = random.randrange(len(content) + 1), random.choice((b"[", b'{"a":', b"(", b"]", b"a."))
    return content[:first] + bracket * random.choice((60, 2000, 100_000)) + content[first:]


def _other_file(content: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    return random.choice(others) if others else b""


_OF_BYTES: Sequence[Callable[[bytes, Random, Sequence[bytes]], bytes]] = (
    _flip, _flip, _flip, _truncate, _zero_the_end, _cut, _repeat, _splice, _huge_number, _huge_number, _deep,
    _other_file,
)  # fmt: skip


def _signed_again(content: bytes, random: Random) -> bytes:
    """Returns a manifest with a changed body and a matching digest."""
    manifest = json.loads(content)
    body = json.dumps(_mutated_tree(json.loads(manifest["body"]), random))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps(manifest | {"body": body, "digest": digest}).encode()


def _mutated_tree(tree: Any, random: Random) -> Any:
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return _odd(random)
        node, key = random.choice(places)
        match random.randrange(5):
            case 0:
                del node[key]
            case 1:
                source, other = random.choice(places)
                if other in source if isinstance(source, dict) else other < len(source):
                    node[key] = json.loads(json.dumps(source[other], default=str))
            case 2 if isinstance(node, dict):
                node[random.choice((f"{key}x", f"{key}.{key}", "", "name", "rounds"))] = node.pop(key)
            case 2 | 3 if isinstance(node[key], list):
                node[key] = node[key] * 2
            case _:
                node[key] = _odd(random)
    return tree


def _odd(random: Random) -> Any:
    return deepcopy(random.choice(_ODD))


def _places(node: Any) -> Any:
    """Yields every container in a tree with each of its keys."""
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


def _load_lines(text: str) -> Any:
    return [json.loads(line) for line in text.splitlines()]


def _dump_lines(lines: Any) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


_TABLES: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    ".json": (json.loads, json.dumps),
    ".jsonl": (_load_lines, _dump_lines),
    ".toml": (tomllib.loads, tomli_w.dumps),
}
