"""python -m tools.same BEFORE AFTER: what two commits do differently, to the byte; for refactorings."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from tools.same.checkouts import Checkout, checked_out, produce
from tools.same.compare import Difference, compare, read_allowed, sort_out
from tools.same.timing import compare_times

QUICK = ("words", "golden", "inline", "ray", "resume", "checkpoints")
PARTS = (*QUICK, "golden-avx2", "inline-avx2", "timing")
NEEDED = {
    "ray": (("inline", "after"), ("ray", "after")),
    "resume": (("inline", "after"), ("resume", "after")),
    "checkpoints": (("inline", "before"), ("resume", "before"), ("resume", "after")),
}
"""The outputs that a part needs, other than its own of both commits."""
KEPT = ".kept"
SHOWN, SHOWN_FILES = 2, 8
"""Differences of a file, and files of a part, that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison.

    Returns:
        0 if nothing differs but what is allowed, and every entry of --allow is needed; else 1.
    """
    options = _parser().parse_args(arguments)
    allowed = read_allowed(options.allow) if options.allow else {}
    parts = options.only or (QUICK if options.quick else PARTS)
    words = "words" if options.quick else "words-with-cells"
    began = time.monotonic()
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(checked_out(name, Path.cwd(), options.store.resolve()))
            for name in (options.before, options.after)
        )
        found = _produce_all(before, after, parts, words) or list(_compare_all(before, after, parts, words))
        if "timing" in parts:
            found += compare_times(before, after)
    print(f"compared {', '.join(parts)} in {time.monotonic() - began:.0f} s")
    return report(found, allowed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.same", description=str(__doc__).partition(": ")[2])
    parser.add_argument("before", help="a commit; its outputs are kept for the next call")
    parser.add_argument("after", help="a commit, or . for the working tree")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--allow", type=Path, help="a TOML file of intended differences: [[allow]] with where, reason")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--store", type=Path, default=cache / "rayfl" / "same", help="where outputs are kept")
    return parser


def _produce_all(before: Checkout, after: Checkout, parts: Sequence[str], words: str) -> list[Difference]:
    """Writes what is compared, two processes at a time, the longest first; returns what failed."""
    jobs: dict[str, tuple[str, ...]] = {
        "ray": ("runs.py", "ray"),
        words: ("words.py", *(["--resolve-cells"] if words != "words" else [])),
        "golden": ("golden.py",),
        "golden-avx2": ("golden.py",),
        "resume": ("runs.py", "resume", KEPT),
        "inline": ("runs.py", "inline"),
        "inline-avx2": ("runs.py", "inline"),
    }
    chosen = {words if part == "words" else part for part in parts}
    needed = {one for part in chosen for one in NEEDED.get(part, ((part, "before"), (part, "after")))}
    sides = {"before": before, "after": after}

    def run(part: str, checkout: Checkout, command: Sequence[str]) -> list[Difference]:
        began = time.monotonic()
        error = produce(checkout, part, *command, older=part.endswith("avx2"))
        print(f"{part} of {checkout.name}: {'failed' if error else f'{time.monotonic() - began:.0f} s'}", flush=True)
        return [Difference(f"{part}/{checkout.name}:failed", "", error)] if error else []

    with ThreadPoolExecutor(2) as pool:
        todo = [(part, sides[side], job) for part, job in jobs.items() for side in sides if (part, side) in needed]
        started = [pool.submit(run, *one) for one in todo]
        failed = [difference for one in started for difference in one.result()]
    if "checkpoints" in chosen and not failed:
        kept = str(before.outputs / "resume" / KEPT)
        failed = run(_checkpoints(before), after, ("runs.py", "checkpoints", kept))
    return failed


def _checkpoints(before: Checkout) -> str:
    return f"checkpoints-of-{before.outputs.parent.name}"


def _compare_all(before: Checkout, after: Checkout, parts: Sequence[str], words: str) -> Iterator[Difference]:
    """Compares what both sides wrote.

    Ray, and a run that is stopped and resumed, must give the bits of an undisturbed run in one process of the same
    commit; so a difference between the commits is reported once.
    """
    inline = after.outputs / "inline"
    for part in parts:
        if part in ("ray", "resume"):
            scenes = [path.name for path in (after.outputs / part).iterdir()]
            yield from compare(f"{part}-as-inline", inline, after.outputs / part, scenes)
        elif part == "checkpoints":
            yield from _compare_checkpoints(before, after)
        elif part != "timing":
            folder = words if part == "words" else part
            yield from compare(part, before.outputs / folder, after.outputs / folder)


def _compare_checkpoints(before: Checkout, after: Checkout) -> Iterator[Difference]:
    resumed, formats = after.outputs / _checkpoints(before), []
    for side in (before, after):
        manifests = (side.outputs / "resume" / KEPT).glob("*/checkpoints/round-*.json")
        formats.append({json.loads(path.read_text())["format"] for path in manifests})
    scenes = [path.name for path in resumed.iterdir()]
    if formats[0] == formats[1]:
        yield from compare("checkpoints", before.outputs / "inline", resumed, scenes)
        return
    for scene in scenes:
        error = resumed / scene / "error.txt"
        said = error.read_text() if error.exists() else "(resumed)"
        if "version" not in said or "\n" in said:
            promised = "one line that asks for the version that wrote it"
            yield Difference(f"checkpoints/{scene}/error.txt:", promised, said)


def report(found: Sequence[Difference], allowed: Mapping[str, str]) -> int:
    """Prints what differs and is not allowed, and returns the exit status."""
    left, unused = sort_out(found, allowed)
    for part, of_part in groupby(left, lambda one: one.where.partition("/")[0]):
        files = [list(group) for _, group in groupby(of_part, lambda one: one.where.partition(":")[0])]
        for group in files[:SHOWN_FILES]:
            print(*group[:SHOWN], sep="\n")
            if len(group) > SHOWN:
                print(f"    ... and {len(group) - SHOWN} more there")
        if len(files) > SHOWN_FILES:
            print(f"... and in {len(files) - SHOWN_FILES} more files of {part}")
    for pattern in unused:
        print(f"allowed, but there is no such difference: {pattern} ({allowed[pattern]})")
    number = f"{len(left)} difference{'s' * (len(left) != 1)}"
    print(f"{number}, and {len(found) - len(left)} allowed" if left or allowed else "the same")
    return 1 if left or unused else 0


if __name__ == "__main__":
    sys.exit(main())
