"""The guard of refactorings: on stored outputs it sees a change of each kind, and on two commits what one mutates."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tools.same.__main__ import report
from tools.same.checkouts import PROBES, Checkout, produce
from tools.same.compare import compare, read_allowed

ROOT = Path(__file__).parents[2]

COLUMNS = {"client": "int64", "score": "double"}
STORED: dict[str, Any] = {
    "inline/scaffold/metrics.json": [{"round": 1, "test_loss": 1.0976105332374573, "bytes": 7440, "query": None}],
    "inline/scaffold/clients.json": {"columns": COLUMNS, "rows": [{"client": 0}]},
    "inline/scaffold/model.json": {"tensors": {"first.weight": "float32 [7, 4] 0f8c2b4de1a97c35"}},
    "words/names/rayfl.json": {"run": "(scenario, *, backend: Backend = 'ray') -> Result"},
    "words/scenarios/femnist_fedavg.json": {"full": {"phases": [{"local": {"lr": 0.01, "steps": [1, 2]}}]}},
    "words/help/rayfl run.json": "usage: rayfl run\n\noptions:\n  --quick   a first look\n  --show    print it\n",
    "words/grids/table.json": {"FedAvg / iid, full": "seed = 0\n\n[data]\nclients = 10\n"},
    "golden/outcomes.json": {"test_golden.py::test[fedavg]": "passed"},
}


def write(folder: Path, outputs: dict[str, Any]) -> Path:
    for name, content in outputs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def mutated(name: str, before: str, after: str) -> dict[str, Any]:
    """The stored outputs, with a part of one of them replaced."""
    text = json.dumps(STORED[name])
    assert text.count(before) == 1
    return STORED | {name: json.loads(text.replace(before, after))}


MUTANTS = {
    "a sum in another order, in a metric": (
        mutated("inline/scaffold/metrics.json", "1.0976105332374573", "1.0976105332374575"),
        "same/inline/scaffold/metrics.json:0.test_loss",
    ),
    "a sum in another order, in the model": (
        mutated("inline/scaffold/model.json", "0f8c2b4de1a97c35", "0f8c2b4de1a97c36"),
        "same/inline/scaffold/model.json:tensors.first.weight",
    ),
    "a whole number that became a float": (
        mutated("inline/scaffold/metrics.json", "7440", "7440.0"),
        "same/inline/scaffold/metrics.json:0.bytes",
    ),
    "a lost column of nulls": (
        mutated("inline/scaffold/metrics.json", ', "query": null', ""),
        "same/inline/scaffold/metrics.json:0.query",
    ),
    "a lost column of clients": (
        mutated("inline/scaffold/clients.json", ', "score": "double"', ""),
        "same/inline/scaffold/clients.json:columns.score",
    ),
    "columns in another order": (
        STORED | {"inline/scaffold/clients.json": {"rows": [{"client": 0}], "columns": COLUMNS}},
        "same/inline/scaffold/clients.json:(order)",
    ),
    "a changed default of a function": (
        mutated("words/names/rayfl.json", "'ray'", "'inline'"),
        "same/words/names/rayfl.json:run",
    ),
    "a changed default of a scenario": (
        mutated("words/scenarios/femnist_fedavg.json", "0.01", "0.02"),
        "same/words/scenarios/femnist_fedavg.json:full.phases.0.local.lr",
    ),
    "a longer list": (
        mutated("words/scenarios/femnist_fedavg.json", "[1, 2]", "[1, 2, 3]"),
        "same/words/scenarios/femnist_fedavg.json:full.phases.0.local.steps.2",
    ),
    "a changed default of a cell": (
        mutated("words/grids/table.json", "clients = 10", "clients = 11"),
        "same/words/grids/table.json:FedAvg / iid, full:4",
    ),
    "a renamed option": (
        mutated("words/help/rayfl run.json", "--quick", "--fast"),
        "same/words/help/rayfl run.json:4",
    ),
    "a golden test that fails now": (
        mutated("golden/outcomes.json", "passed", "failed assert 1 == 2"),
        "same/golden/outcomes.json:test_golden.py::test[fedavg]",
    ),
    "a file that is no longer written": (
        {name: content for name, content in STORED.items() if "model" not in name},
        "same/inline/scaffold/model.json:",
    ),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_mutant_of_each_kind_is_the_only_difference_and_fails_the_comparison(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs, where = MUTANTS[what]
    before, after = write(tmp_path / "before", STORED), write(tmp_path / "after", outputs)
    found = compare("same", before, after)
    assert [one.where for one in found] == [where]
    assert [one.where for one in compare("same", after, before)] == [where]
    assert report(found, {}) == 1
    assert f"{where}\n    - " in capsys.readouterr().out


def test_equal_outputs_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nan = STORED | {"inline/nan.json": [float("nan"), -0.0]}
    found = compare("same", write(tmp_path / "before", nan), write(tmp_path / "after", nan))
    assert report(found, {}) == 0
    assert capsys.readouterr().out == "the same\n"


def test_what_fails_alike_on_both_sides_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROBES)
    for side in ("before", "after"):
        write(tmp_path / side, STORED | {"golden/outcomes.json": {"one": "passed", "other": "failed assert 1 == 2"}})
        import_module("runs").one_by_one(["scaffold_twice"], tmp_path / side / "inline", lambda *_: 1 / 0)
    found = compare("same", tmp_path / "before", tmp_path / "after")
    places = ["same/golden/outcomes.json:other", "same/inline/scaffold_twice/error.txt:"]
    assert [one.where for one in found] == places
    assert "ZeroDivisionError" in found[1].before


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("scenario.toml", "a = 1\n", "a = 1 # one\n"), ("metrics.json", "[1]", "[1 ]"), ("said.txt", "a\nb\n", "a\nb")],
)
def test_other_bytes_of_the_same_content_are_a_difference(tmp_path: Path, file: str, before: str, after: str) -> None:
    for side, text in (("before", before), ("after", after)):
        (tmp_path / side).mkdir()
        (tmp_path / side / file).write_text(text)
    (found,) = compare("same", tmp_path / "before", tmp_path / "after")
    assert found == (f"same/{file}:", "(other bytes)", "(other bytes)")


def test_a_probe_gets_its_arguments_unchanged_and_then_its_folder(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text("import pathlib, sys\npathlib.Path(sys.argv[-1], 'said.txt').write_text(' '.join(sys.argv[1:-1]))")
    assert produce(Checkout("", tmp_path, tmp_path / "OUT"), "part", str(probe), "OUT", "/data/OUTPUTS") is None
    assert (tmp_path / "OUT/part/said.txt").read_text() == "OUT /data/OUTPUTS"


def test_a_probe_that_writes_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("")
    assert "wrote nothing" in str(produce(Checkout("", tmp_path, tmp_path / "out"), "part", str(tmp_path / "probe.py")))


def test_a_printed_place_is_allowed_though_it_has_brackets(tmp_path: Path) -> None:
    outputs, where = MUTANTS["a golden test that fails now"]
    found = compare("same", write(tmp_path / "before", STORED), write(tmp_path / "after", outputs))
    assert "[fedavg]" in where
    assert report(found, {where: "its scenario changed"}) == 0


def test_an_intended_difference_is_allowed_and_one_that_is_not_there_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs, where = MUTANTS["a renamed option"]
    found = compare("same", write(tmp_path / "before", STORED), write(tmp_path / "after", outputs))
    allowed = {"same/words/help/*": "the option has the name that others use"}
    assert report(found, allowed) == 0
    assert report(found, allowed | {"same/golden/*": "none"}) == 1
    assert "there is no such difference: same/golden/* (none)" in capsys.readouterr().out
    assert report(found, {where.replace("run", "grid"): "another command"}) == 1


@pytest.mark.parametrize("entry", ['where = "*"', 'where = "*"\nreason = " "', 'where = "*"\nreason = "x"\nparts = 1'])
def test_an_intended_difference_needs_its_reason(tmp_path: Path, entry: str) -> None:
    (tmp_path / "allow.toml").write_text(f"[[allow]]\n{entry}\n")
    with pytest.raises(SystemExit, match="needs `where` and `reason`"):
        read_allowed(tmp_path / "allow.toml")


@pytest.mark.slow
def test_a_commit_that_adds_a_comment_is_the_same_and_one_that_changes_a_default_is_not(tmp_path: Path) -> None:
    clone, default = tmp_path / "clone", "mu: NonNegativeFloat = 0.01"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (file,) = (path for path in (clone / "rayfl").rglob("*.py") if default in path.read_text())

    def same(text: str) -> tuple[int, str]:
        """The exit status and the output for the commit before and one in which the file has this text."""
        file.write_text(text)
        author = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        subprocess.run(["git", *author, "commit", "--quiet", "--all", "--message", "next"], check=True, cwd=clone)
        arguments = ["HEAD~", "HEAD", "--only", "inline", "--store", str(tmp_path / "store")]
        done = subprocess.run(
            [sys.executable, "-m", "tools.same", *arguments], cwd=clone, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    original = file.read_text()
    assert same(f"{original}# a comment\n")[0] == 0
    status, said = same(original.replace(default, "mu: NonNegativeFloat = 0.0101"))
    assert status == 1
    assert "inline/asynchronous/scenario.toml:phases.1.algorithm.penalties.0.mu\n    - 0.01\n    + 0.0101\n" in said
    assert "inline/asynchronous/model.json:tensors.first.weight" in said
    assert "inline/scaffold" not in said
