"""Shell completion, through argcomplete's protocol in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line

from rayfl.__main__ import main
from rayfl.cli.commands import COMMANDS
from rayfl.cli.completion import SHELLS, whole_parser
from rayfl.cli.scenario_keys import keys_by_section
from rayfl.config.scenario_files import find_scenarios


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for every test."""
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Completes a line, and returns the candidates."""
    monkeypatch.chdir(tmp_path)

    def complete(line: str) -> list[str]:
        words = line.split()[1:2]
        finder = CompletionFinder(whole_parser(words), always_complete_options=False)
        _, prefix, _, before, first_colon = split_line(line, len(line))
        return list(finder._get_completions(before, prefix, "", first_colon))  # type: ignore[no-untyped-call]

    return complete


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("rayfl ", ["run", "grid", "doctor", "completion"]),
        ("rayfl run femnist_cy", ["femnist_cyclic"]),
        ("rayfl grid fedbug_table_", ["fedbug_table_1", "fedbug_table_2"]),
        ("rayfl run femnist_cyclic --ba", ["--backend"]),
        ("rayfl run femnist_cyclic --backend ", ["ray", "inline"]),
        ("rayfl run femnist_cyclic see", ["seed="]),
        ("rayfl run femnist_cyclic phases.1.ro", ["phases.1.rounds="]),
        ("rayfl run femnist_cyclic --backend inline see", ["seed="]),
        ("rayfl run femnist_cyclic seed=1 --quick phases.cyclic.ro", ["phases.cyclic.rounds="]),
        ("rayfl run femnist_cyclic seed=1 --backend ", ["ray", "inline"]),
        ("rayfl run --quick femnist_cy", ["femnist_cyclic"]),
        ("rayfl run --resume runs/mine see", ["seed="]),
        ("rayfl resume runs/mine see", ["seed="]),
        ("rayfl run femnist_cyclic phases.", ["phases.cyclic.", "phases.federated."]),
        ("rayfl run femnist_cyclic phases.cyclic.ro", ["phases.cyclic.rounds="]),
        ("rayfl run femnist_cyclic phases.cyclic.local.lr_", ["phases.cyclic.local.lr_decay="]),
        ("rayfl submit femnist_cyclic data.clie", ["data.clients="]),
        ("rayfl completion ", list(SHELLS)),
    ],
)
def test_the_next_word_is_completed(completed: object, line: str, some: list[str]) -> None:
    found = [word.strip() for word in completed(line)]  # type: ignore[operator]
    assert set(some) <= set(found)
    start = line.rpartition(" ")[2]
    assert all(word.startswith(start) for word in found)


def test_no_grid_is_offered_where_a_scenario_is_asked_for(completed: object) -> None:
    found = [word.strip() for word in completed("rayfl run f")]  # type: ignore[operator]
    assert set(found) == {name for name in find_scenarios() if name.startswith("f")}


@pytest.mark.parametrize(
    "line",
    [
        "rayfl ",
        "rayfl run femnist_c",
        "rayfl run femnist_cyclic phases.cyclic.ro",
        "rayfl data femnist_cyclic data.cl",
        "rayfl grid fedbug_table_",
        "rayfl plot --",
    ],
)
def test_the_shell_gets_its_answer_without_libraries_that_take_long_to_load(line: str, tmp_path: Path) -> None:
    """In a separate process, as the script of `rayfl completion` does, once the keys have been read."""
    keys_by_section()
    answer = tmp_path / "answer"
    program = (
        "import atexit, os, sys\n"
        "exit = os._exit\n"
        "def leave(status):\n"
        "    slow = ('torch', 'ray', 'pydantic', 'numpy', 'pyarrow', 'matplotlib')\n"
        "    print([name for name in slow if name in sys.modules], flush=True)\n"
        "    exit(status)\n"
        "os._exit = leave\n"
        "from rayfl.__main__ import main\nmain([])\n"
    )
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
    words = answer.read_text().split("\n")
    assert all(word.strip().startswith(line.rpartition(" ")[2]) for word in words)
    assert words != [""]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_rayfl(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "rayfl" in said
    assert "_ARGCOMPLETE" in said


def test_bash_completes_by_the_printed_script(tmp_path: Path) -> None:
    command = tmp_path / "rayfl"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rayfl "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(rayfl completion bash)"\n'
        'COMP_LINE="rayfl run femnist_cyclic phases.cyclic.ro"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9\n'
        "COMP_WORDS=($COMP_LINE); COMP_CWORD=3\n"
        '_python_argcomplete rayfl phases.cyclic.ro femnist_cyclic; echo "${COMPREPLY[@]}"\n'
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["phases.cyclic.rounds="], done.stderr


def test_every_command_contributes_its_options() -> None:
    for name in COMMANDS:
        assert whole_parser([name]).format_help()
