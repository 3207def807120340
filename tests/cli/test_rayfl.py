"""The command `rayfl`: its subcommands are the command lines of scenarios and grids, and it lists both."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rayfl
from rayfl.__main__ import EXAMPLES, main
from rayfl.cli.commands import COMMANDS
from tests.cli.test_run import TINY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project with a scenario and a grid."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "tiny.toml").write_text(TINY)
    (tmp_path / "scenarios" / "small.grid.toml").write_text(
        'title = "A small grid"\nscenario = "femnist_fedavg"\nseeds = [0, 1]\n'
        "[rows]\nA = {}\nB.phases.federated.rounds = 3\n[columns]\nC = {}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"rayfl {rayfl.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", rayfl.__version__)


def test_list_shows_scenarios_and_grids_in_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert said == listed
    lines = [line.split(maxsplit=1) for line in said.splitlines() if line.strip()]
    rows = {name: rest.strip() for name, rest in lines}
    assert re.fullmatch(
        r"A tiny run \[in brackets\] +my_arrays:four_clouds own +5 rounds, 10 updates +3 rounds, 6 updates",
        rows["tiny"],
    )
    assert re.fullmatch(r"A small grid +4", rows["small"])
    assert {"femnist_cyclic", "cyclicfl_table_2"} <= rows.keys()


def test_run_shows_and_grid_makes_tables_like_their_modules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "femnist_fedavg", "--quick", "--show", "seed=7"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["seed"] == 7
    assert main(["grid", "small", "--table-only"]) == 0
    assert "A small grid (grid small)" in capsys.readouterr().out
    assert (folder / "runs" / "small" / "table.md").is_file()


def test_help_leads_to_the_subcommands_and_theirs_names_them_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    def help_of(*command: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main([*command, "--help"])
        assert caught.value.code == 0
        return capsys.readouterr().out

    assert EXAMPLES.strip() in help_of()
    assert "usage: rayfl run [-h]" in help_of("run")
    assert "rayfl run femnist_cyclic --quick" in help_of("run")
    assert "usage: rayfl grid [-h]" in help_of("grid")
    assert "rayfl grid cyclicfl_table_2 --table-only" in help_of("grid")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_command_which_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, start in ((["--help"], "usage: rayfl [-h]"), ([name, "--help"], f"usage: rayfl {name} [-h]")):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        out = capsys.readouterr().out
        assert out.startswith(start)
        if arguments == ["--help"]:
            assert re.search(rf"^  {name} +{re.escape(COMMANDS[name].summary)}$", out, re.MULTILINE)


def test_parsers_of_commands_load_neither_pytorch_nor_ray() -> None:
    """Shell completion makes them whenever the tab key is pressed."""
    program = (
        "import sys\nfrom rayfl.cli.commands import COMMANDS\n"
        "for command in COMMANDS.values(): assert command.parser().prog == f'rayfl {command.name}'\n"
        "print([name for name in ('torch', 'ray', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["statsu"])
    assert "no command 'statsu'; did you mean 'status'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["frob"], ["resume"], ["run"], ["grid", "--colour", "small"]])
def test_wrong_use_exits_with_2_and_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: rayfl" in capsys.readouterr().err


def test_errors_are_one_message_on_stderr_and_exit_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "tinny"]) == 1
    assert capsys.readouterr().err.startswith("error: no scenario 'tinny'; did you mean 'tiny'?")
    (folder / "scenarios" / "small.grid.toml").write_text("title = ")
    assert main(["list", "--grids"]) == 1
    assert capsys.readouterr().err.startswith("error: cannot read")
