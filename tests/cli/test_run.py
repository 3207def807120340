"""The command line `python -m rayfl.scenario`: output, files and exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rayfl
from rayfl.cli.run import EXAMPLES, main
from rayfl.config import load_scenario
from rayfl.runs.resolution import resolve

TINY = """\
title = "A tiny run [in brackets]"

[data]
name = "my_arrays:four_clouds"
clients = 4

[model]
name = "my_arrays:Net"

[[phases]]
name = "cyclic"
schedule = "relay"
rounds = 2
cohort = 0.5

[[phases]]
name = "federated"
rounds = 3
cohort = 2
local = { lr = 0.1, batch_size = 5 }

[quick]
"phases.1.rounds" = 1
"""
MY_ARRAYS = """\
import numpy as np
from torch import nn


def four_clouds():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 4
    points = rng.normal(size=(60, 2)) + 3 * np.stack([labels % 2, labels // 2], axis=1)
    return points[:40], labels[:40], points[40:], labels[40:]


class Net(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(2, num_classes)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project: a scenario, and the module with its arrays."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "tiny.toml").write_text(TINY)
    (tmp_path / "my_arrays.py").write_text(MY_ARRAYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_arrays", raising=False)
    return tmp_path


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_list_shows_names_and_titles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("tiny" in line and "A tiny run [in brackets]" in line for line in lines)
    assert any("femnist_cyclic" in line and "CyclicFL on FEMNIST" in line for line in lines)


def test_show_prints_toml_that_loads_as_the_same_scenario(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny", "--show", "seed=5", "phases.0.cohort={bernoulli=0.5}"]) == 0
    shown = capsys.readouterr().out
    again = load_scenario(tomllib.loads(shown))
    assert again == resolve(load_scenario("tiny", ["seed=5", "phases.0.cohort={bernoulli=0.5}"]))
    assert (again.name, again.seed) == ("tiny", 5)
    assert not (folder / "runs").exists()


def test_show_applies_quick_before_overrides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tiny", "--quick", "--show"])
    assert tomllib.loads(capsys.readouterr().out)["phases"][1]["rounds"] == 1
    main(["tiny", "phases.1.rounds=7", "--quick", "--show"])
    assert tomllib.loads(capsys.readouterr().out)["phases"][1]["rounds"] == 7


def test_help_explains_options_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert EXAMPLES.format(prog="python -m rayfl.scenario").strip() in said
    for option in ("--list", "--show", "--quick", "--backend", "--address", "--out", "--data-dir", "key.path=value"):
        assert option in said


@pytest.mark.parametrize("arguments", [[], ["tiny", "--backend", "slurm"], ["tiny", "--colour"]])
def test_wrong_use_exits_with_2_and_the_usage(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m rayfl.scenario" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--backend", "inline", "--address", "auto"], "--address: has no effect with --backend inline"),
        (["--resume", "runs/tiny", "--out", "there"], "--out: has no effect where a run continues in its own folder"),
        (["tiny", "--show", "--resume", "runs/tiny"], "--resume: has no effect with --show"),
        (["--list", "--quick"], "--quick: has no effect with --list"),
        (["--list", "--resume", "runs/tiny"], "--resume: has no effect with --list"),
        (["--list", "--no-curves"], "--no-curves: has no effect with --list"),
        (["tiny", "--list"], "tiny: has no effect with --list"),
        (["--list", "seed=3"], "seed=3: has no effect with --list"),
        (["tiny", "--keep-momentum"], "--keep-momentum: has no effect without --centralised"),
    ],
)
def test_an_option_without_an_effect_is_refused_by_name(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {message}; leave it out\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["."], "error: no scenario '.'; `rayfl list` lists all"),
        (["tinny"], "error: no scenario 'tinny'; did you mean 'tiny'?"),
        (["gone.toml"], "error: no scenario file 'gone.toml'"),
        (["tiny", "seed"], "error: 'seed' is not an override; write key.path=value"),
        (["tiny", "phases.0.rounds=-1"], "phases.cyclic.rounds: must be greater than or equal to 0 (got -1)"),
        (["tiny", "model=lenet", "--backend", "inline"], "error: unknown model 'lenet'; did you mean 'lenet5'"),
        (["tiny", "phases.0.cohort=9", "--backend", "inline"], "error: phases.cyclic.cohort: 9 clients per round"),
        (["tiny", "phases.1.local.lr=3e38", "--backend", "inline"], "phase 'federated', round 3: "),
        (["tiny", "--out", "my_arrays.py/runs"], "my_arrays.py/runs': Not a directory; choose another one with --out"),
        (["tiny", "--out", "a" * 300, "--backend", "inline"], "File name too long; choose another one with --out"),
        (["tiny", "--data-dir", "gone", "--backend", "inline"], "error: --data-dir: there is no folder 'gone'"),
        (
            ["tiny", "numerics.threads=100000", "--backend", "inline"],
            "error: numerics.threads: 100000 is more than",
        ),
        (["tiny", "--out", "my_arrays.py"], "my_arrays.py': File exists; choose another one with --out"),
    ],
)
def test_errors_are_one_message_on_stderr_and_exit_1(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert message in said.err
    assert "Traceback" not in said.err + said.out


def test_a_scenario_file_that_cannot_be_read_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "scenarios" / "broken.toml").write_text("title = ")
    for arguments in (["broken"], ["--list"]):
        assert main(arguments) == 1
        assert "error: cannot read scenario file 'scenarios/broken.toml'" in capsys.readouterr().err


@pytest.mark.usefixtures("pictures")
def test_a_run_leaves_its_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny", "--backend", "inline", "--out", "results", "evaluation.every=2", "seed=3"]) == 0
    said = capsys.readouterr().out
    left = only(folder / "results")
    assert left.name.startswith("tiny-")
    assert str(left.name) in said
    assert "data     my_arrays:four_clouds, from arrays in memory: " in said
    assert {file.name for file in left.iterdir()} == {
        "scenario.toml",
        "status.json",
        "metrics.jsonl",
        "model.safetensors",
        "environment.json",
        "split.json",
        "curves.png",
        "models",
    }
    assert [file.name for file in (left / "models").iterdir()] == ["phase_1_cyclic.safetensors"]
    assert load_scenario(left / "scenario.toml").seed == 3
    rows = [json.loads(line) for line in (left / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [2, 4, 5]
    assert (left / "curves.png").read_bytes().startswith(b"\x89PNG")
    environment = json.loads((left / "environment.json").read_text())
    assert (environment["seed"], environment["backend"]) == (3, "inline")
    assert environment["data"]["source"] == "arrays"
    assert environment["packages"].keys() >= {"torch", "numpy", "ray"}


@pytest.mark.usefixtures("pictures")
def test_curves_are_left_out_where_the_command_says_so(folder: Path) -> None:
    assert main(["tiny", "--backend", "inline", "--no-curves"]) == 0
    assert not (only(folder / "runs") / "curves.png").exists()


@pytest.mark.slow
def test_a_subprocess_runs_a_module_beside_the_scenarios(folder: Path) -> None:
    """As a user types it: modules in the working directory can be imported."""
    python_path = os.pathsep.join([str(Path(rayfl.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", "-m", "rayfl.scenario"]
    environment = {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    done = ran("tiny", "--backend", "inline", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert (only(folder / "runs") / "model.safetensors").is_file()
    failed = ran("tiny", "sed=1")
    assert (failed.returncode, failed.stdout) == (1, "starting tiny\n")
    assert failed.stderr == ("error: scenario 'tiny':\nsed: unknown key; did you mean 'seed'? (got '1')\n")
