"""Measures what the quick tests prove: how many of 200 mutants of the core they kill.

A mutant is one small change of one line (cosmic-ray's operators: `+` for `-`, `<` for `<=`, a loop left out). It is
killed if a test that reaches the line fails, within a minute. Which tests reach a line is recorded once, by coverage.

    python -m tools.mutants reach REACH         # the quick tests under coverage, once per state of the tests
    python -m tools.mutants run REACH RESULTS   # goes on where it was stopped
    python -m tools.mutants summary RESULTS     # killed by area, and survivors; tests/mutants.jsonl has the last pass

The mutants are drawn from the sources in `AREAS` with a fixed seed; where these have changed since an earlier pass,
`--like ITS_RESULTS` finds its mutants again. Work in a clone of its own: files in `rayfl/` are overwritten while a
mutant is tried, and put back. `--share 1/2` and `2/2` let two processes, in two clones, share the work. Needs the
group `mutants` of pyproject.toml.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
AREAS = {
    "reduction": ["engine/reduction.py", "engine/host_exchange.py"],
    "exact sums": ["engine/exact_sum.py"],
    "client states": ["engine/state/client_states.py", "engine/state/state_store.py"],
    "scheduler": ["engine/scheduler.py", "engine/assignment.py", "engine/schedules"],
    "snapshots": ["engine/state/snapshots.py"],
    "accounting": [
        "privacy/composition.py",
        "privacy/clients/accounting.py",
        "privacy/samples/accounting.py",
        "privacy/samples/rdp.py",
        "engine/plan/sample_privacy.py",
    ],
    "scenario checks": [
        "config/scenario.py",
        "config/phase.py",
        "config/validation.py",
        "engine/plan/scenario_checks.py",
        "engine/plan/privacy_checks.py",
    ],
}
"""Files and folders in rayfl/; of each area the same number of mutants is drawn."""
NUMBER = 200
SEED = 36
SECONDS = 60
KILLED = ("killed", "hung")


@dataclass(frozen=True)
class Mutant:
    """One change: its file, the first line it touches, and how cosmic-ray makes it."""

    area: str
    path: str
    line: int
    operator: str
    occurrence: int
    column: int

    def code(self) -> str:
        """The file's text with the change."""
        source = (ROOT / self.path).read_text()
        changed: str | None = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return changed

    def change(self) -> str:
        """The line before and after."""
        pairs = zip((ROOT / self.path).read_text().splitlines(), self.code().splitlines(), strict=False)
        one, other = next((a, b) for a, b in pairs if a != b)
        return f"{one.strip()}  ->  {other.strip()}"


def all_mutants(area: str) -> Iterator[Mutant]:
    """Every change of an area's files that can be seen: not those of annotations, which nothing evaluates."""
    for name in AREAS[area]:
        place = ROOT / "rayfl" / name
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            inert = _inert_spans(path.read_text())
            tree = get_ast_from_path(path)
            for operator in sorted(operator_names()):
                made = get_operator(operator)
                if made.arguments():
                    continue
                positions = (start for node in ast_nodes(tree) for start, _ in made().mutation_positions(node))
                for occurrence, start in enumerate(positions):
                    if not any(begin <= start < end for begin, end in inert):
                        yield Mutant(area, str(path.relative_to(ROOT)), start[0], operator, occurrence, start[1])


def _inert_spans(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations and `if TYPE_CHECKING` stand, as (line, column) from and to."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes.append(node)
    places = [node for node in nodes if isinstance(node, ast.expr | ast.stmt)]
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in places]


def drawn() -> list[Mutant]:
    """The mutants: as many of each area, and at most one of a place."""
    stream = random.Random(SEED)
    chosen: list[Mutant] = []
    for index, area in enumerate(AREAS):
        by_place: dict[tuple[str, int, int], list[Mutant]] = {}
        for mutant in all_mutants(area):
            by_place.setdefault((mutant.path, mutant.line, mutant.column), []).append(mutant)
        number = NUMBER * (index + 1) // len(AREAS) - NUMBER * index // len(AREAS)
        places = stream.sample(sorted(by_place), number)
        chosen += [stream.choice(by_place[place]) for place in places]
    return chosen


def found_again(passes: list[Path]) -> dict[int, Mutant | dict[str, Any]]:
    """The mutants of an earlier pass by number, found by their words, since lines move.

    Where a line has changed, the mutant's row of that pass takes its place.
    """
    rows = sorted(
        (json.loads(line) for path in passes for line in path.read_text().splitlines()), key=lambda row: row["mutant"]
    )
    known: dict[tuple[str, str], list[Mutant]] = {}
    for area in AREAS:
        for mutant in all_mutants(area):
            known.setdefault((mutant.path, mutant.operator), []).append(mutant)

    def nearest_first(row: dict[str, Any]) -> list[Mutant]:
        return sorted(known.get((row["path"], row["operator"]), ()), key=lambda mutant: abs(mutant.line - row["line"]))

    found: dict[int, Mutant | dict[str, Any]] = {}
    for row in rows:
        same = next((m for m in nearest_first(row) if m.change() == row["change"]), None)
        if same is not None:
            known[same.path, same.operator].remove(same)
        found[row["mutant"]] = same or row
    return found


def reach(out: Path) -> None:
    """Runs the quick tests under coverage; writes, by file and line, which tests reach it, and what each test takes."""
    files = ",".join(sorted({mutant.path for area in AREAS for mutant in all_mutants(area)}))
    data = out.with_suffix(".coverage")
    report, settings = out.with_suffix(".xml"), out.with_suffix(".ini")
    settings.write_text(f"[run]\nparallel = true\ndata_file = {data}\ndynamic_context = none\ninclude = {files}\n")
    chosen = ["-m", "not slow", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"]
    shared = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    pytest = [sys.executable, "-m", "pytest", *shared, *chosen, "tests"]
    covered = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    subprocess.run([*pytest, *covered], cwd=ROOT, check=False)
    from coverage import CoverageData

    measured = CoverageData(str(data))
    measured.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in measured.measured_files():
        by_line = measured.contexts_by_lineno(file)
        lines[str(Path(file).relative_to(ROOT))] = {
            line: sorted({context.rpartition("|")[0] for context in contexts if context})
            for line, contexts in by_line.items()
        }
    out.write_text(json.dumps({"lines": lines, "seconds": _seconds(report)}))


def _seconds(report: Path) -> dict[str, float]:
    """What each test that passed took, by its id; one that fails without a mutant could kill none."""
    cases = ElementTree.parse(report).iter("testcase")
    passed = [case for case in cases if case.find("failure") is None and case.find("error") is None]
    return {f"{case.get('file')}::{case.get('name')}": float(case.get("time") or 0) for case in passed}


def run(reached: Path, out: Path, share: str, earlier: list[Path]) -> None:
    """Tries the mutants that `out` does not have yet, and appends a line of JSON for each."""
    known = json.loads(reached.read_text())
    done = {line["mutant"] for line in map(json.loads, out.read_text().splitlines())} if out.exists() else set()
    part, parts = map(int, share.split("/"))
    if _exit_code(list(known["seconds"]), 5 * SECONDS, "--collect-only"):
        raise SystemExit(f"{reached} has tests that cannot be collected here, which would count as killed")
    mutants = found_again(earlier) if earlier else dict(enumerate(drawn()))
    with out.open("a") as results:
        for number, mutant in list(mutants.items())[part - 1 :: parts]:
            if number in done:
                continue
            if isinstance(mutant, dict):
                results.write(json.dumps(mutant | {"outcome": "line changed"}) + "\n")
                continue
            reaching = _reaching(known["lines"].get(mutant.path, {}), mutant.line)
            tests = {test: known["seconds"][test] for test in reaching if test in known["seconds"]}
            began = time.monotonic()
            outcome = tried(mutant, tests) if tests else "not reached"
            row = {"mutant": number, "outcome": outcome, "tests": len(tests), "seconds": time.monotonic() - began}
            results.write(json.dumps(row | asdict(mutant) | {"change": mutant.change()}) + "\n")
            results.flush()


def _reaching(lines: dict[str, list[str]], line: int) -> list[str]:
    """The tests that reach a line; of one that runs when the module is imported, those that reach any of the file."""
    begun = max((int(reached) for reached in lines if int(reached) <= line), default=0)  # where the statement begins
    return sorted(lines.get(str(begun), [])) or sorted({test for tests in lines.values() for test in tests})


def tried(mutant: Mutant, tests: dict[str, float]) -> str:
    """Runs the tests with the change in place until one fails or `SECONDS` of CPU time are over.

    Returns:
        "killed" if a test failed, "hung" if the tests take far less time without the change, or else "survived".
    """
    path = ROOT / mutant.path
    before = path.read_text()
    path.write_text(mutant.code())
    try:
        left = SECONDS
        for several in _likely_first(mutant, tests):
            began = os.times()
            code = _exit_code(several, left)
            if code in (-signal.SIGKILL, -signal.SIGXCPU):
                return "hung" if sum(tests[test] for test in several) < left / 4 else "survived"
            if code:
                return "killed"
            left -= int(os.times().children_user - began.children_user)
            if left < SECONDS / 6:
                break
        return "survived"
    finally:
        path.write_text(before)


def _likely_first(mutant: Mutant, tests: dict[str, float]) -> Iterator[list[str]]:
    """A few tests of the files that are named like the mutant's or reach its line most, then all others."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: tests[test]):
        files.setdefault(test.partition("::")[0], []).append(test)
    stem = Path(mutant.path).stem
    ranked = sorted(files, key=lambda file: (stem not in file, -len(files[file])))
    first = [test for file in ranked[:8] for test in files[file][:12]]
    yield first
    if others := [test for test in tests if test not in set(first)]:
        yield sorted(others, key=lambda test: tests[test])


def _exit_code(tests: list[str], seconds: int, *options: str) -> int:
    """Of pytest; negative if a signal ended it."""
    arguments = ROOT / ".mutant_tests"
    arguments.write_text("\n".join(tests))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, f"@{arguments}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
        process_group=0,
    )
    try:
        return process.wait(timeout=5 * SECONDS)  # for a hang without CPU time
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what the tests started
        process.wait()
        arguments.unlink()


def summary(paths: list[Path]) -> None:
    """Prints killed by area, and the survivors."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    for area in AREAS:
        of_area = [row for row in rows if row["area"] == area]
        killed = sum(row["outcome"] in KILLED for row in of_area)
        print(f"{area:16} {killed:3} of {len(of_area)} killed")
    print(f"{'all':16} {sum(row['outcome'] in KILLED for row in rows):3} of {len(rows)} killed")
    for row in rows:
        if row["outcome"] not in KILLED:
            print(f"  {row['outcome']:11} {row['path']}:{row['line']}: {row['change']}  {row.get('note', '')}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("step", choices=("list", "reach", "run", "summary"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--share", default="1/1")
    parser.add_argument(
        "--like", nargs="*", default=[], type=Path, help="results of an earlier pass, to be compared with"
    )
    given = parser.parse_args(arguments)
    files = [path.absolute() for path in given.files]
    if given.step == "list":
        for mutant in drawn():
            print(f"{mutant.area} {mutant.path}:{mutant.line}: {mutant.change()}")
    elif given.step == "reach":
        reach(files[0])
    elif given.step == "run":
        run(files[0], files[1], given.share, given.like)
    else:
        summary(files)


if __name__ == "__main__":
    main()
