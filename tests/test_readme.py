"""README is short, and its commands and snippets work; `.ci/run` runs its quick scenario in full (`make run`)."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rayfl
from rayfl.__main__ import main
from rayfl.config.scenario_files import find_grids
from rayfl.studies.grid.schema import load_grid

README = Path(rayfl.__file__).parents[1] / "README.md"
SHORT: dict[str, Any] = {
    "data.source": "generated",
    "data.clients": 8,
    "phases.federated.rounds": 1,
    "evaluation.every": 1,
}
"""What the snippets' runs are shortened to."""


def commands() -> list[str]:
    """The indented lines that a shell runs, without their comments."""
    lines = re.findall(r"^    (\S.*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    found = [re.sub(r"\s+#.*", "", line) for line in lines]
    return [line for line in found if line.split()[0] in {"make", "pip", "python", "ray", "rayfl"}]


def scenario_arguments(command: str) -> list[str] | None:
    """What `rayfl run` gets by a command; None where it runs no scenario."""
    words = shlex.split(command)
    if words[:2] == ["rayfl", "run"]:
        return words[2:]
    module = ["python", "-m", "rayfl.scenario"]
    for first in range(len(words)):
        if words[first : first + 3] == module:
            return words[first + 3 :]
    return None


def test_it_is_at_most_150_lines_and_7_kilobytes() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
    assert README.stat().st_size <= 7000


@pytest.mark.slow
def test_its_accuracies_are_those_of_the_run_on_one_of_the_processors_that_it_names(tmp_path: Path) -> None:
    here = (torch.backends.cpu.get_cpu_capability(), torch.__version__[:5])
    if here not in (("AVX512", "2.15."), ("AVX2", "2.15.")):
        pytest.skip(f"README shows the figures of AVX-512 and AVX2 with PyTorch 2.15, and this is {here}")
    overrides = {"data.source": "generated"}
    result = rayfl.run("femnist_cyclic", quick=True, overrides=overrides, backend="inline", out=tmp_path)
    last = {row["phase"]: row["test_accuracy"] for row in result.metrics.to_pylist()}
    text = README.read_text(encoding="utf-8")
    shown = re.findall(r"^ +test accuracy +([\d.]+) % +([\d.]+) %$|([\d.]+) and ([\d.]+) % ", text, re.MULTILINE)
    assert len(shown) == 3
    assert tuple(f"{100 * last[phase]:.4g}" for phase in ("cyclic", "federated")) in [
        tuple(filter(None, one)) for one in shown
    ]


def test_it_shows_the_commands_by_which_people_start() -> None:
    starts = [command.split()[:2] for command in commands()]
    for start in (["pip", "install"], ["rayfl", "run"], ["python", "-m"], ["ray", "job"], ["rayfl", "grid"]):
        assert start in starts
    text = README.read_text(encoding="utf-8")
    assert "`make run`" in text
    assert "`make test`" in text


@pytest.mark.parametrize("command", [command for command in commands() if scenario_arguments(command) is not None])
def test_a_scenario_that_it_runs_resolves(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = scenario_arguments(command)
    assert arguments is not None
    assert main(["run", *arguments, "--show"]) == 0
    assert capsys.readouterr().out.startswith('name = "femnist_cyclic"')


def test_every_other_command_it_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    others = [command for command in commands() if scenario_arguments(command) is None]
    for command in others:
        words = shlex.split(command)
        if words[:2] == ["rayfl", "grid"]:
            assert words[3:] == ["--quick"]
            assert load_grid(find_grids()[words[2]]).quick is not None
        elif words[0] == "rayfl":
            assert main(words[1:]) == 0
            assert "cyclicfl_table_2" in capsys.readouterr().out
        else:
            assert command == "pip install ."  # what tests/test_wheel.py does


def snippets() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(snippets())))
def test_a_snippet_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "snippet.py").write_text(snippets()[number].replace("__main__:", "snippet:"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("RAYFL_DATA", raising=False)
    shown = rayfl.run
    results = []

    @functools.wraps(shown)
    def shortened(scenario: str, *, overrides: dict[str, Any], **options: Any) -> rayfl.Result:
        short = SHORT | ({"phases.cyclic.rounds": 1} if "cyclic" in scenario else {})
        results.append(shown(scenario, overrides=overrides | short, backend="inline", out=tmp_path, **options))
        return results[-1]

    monkeypatch.setattr(rayfl, "run", shortened)
    try:
        __import__("snippet")
    finally:
        sys.modules.pop("snippet", None)
    (result,) = results
    assert result.metrics.num_rows >= 1
    assert result.state_dict
