"""`rayfl run SCENARIO --resume-or-start FOLDER`: begins a run, continues it, and knows that it has ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import tomli_w

from rayfl.cli.run import main
from rayfl.config.loader import load_scenario
from rayfl.errors import RayflError
from rayfl.runs.again import resume_or_start
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.runs.options import RunOptions
from rayfl.runs.run_lock import LOCK, run_lock
from rayfl.runs.status import STATUS
from tests.callbacks.scene import PLAIN, tables


def scenario_in(folder: Path, **phase: object) -> Path:
    path = folder / "scene.toml"
    path.write_text(tomli_w.dumps(tables(phases=[PLAIN | phase], checkpoint={"rounds": 1})))
    return path


def test_the_same_command_begins_a_run_continues_it_and_leaves_it_when_it_has_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "one"
    command = [str(scenario_in(tmp_path)), "--backend", "inline", "--resume-or-start", str(folder)]
    with monkeypatch.context() as patch:
        patch.setattr("rayfl.runs.run.Run.finish", killed)
        assert main(command) == 1
    assert f"begins a run in '{folder}'" in capsys.readouterr().out
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"continues the run in '{folder}'" in printed
    assert "the run continues after round" in printed
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert main(command) == 0
    assert f"the run in '{folder}' has finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_finished_run_goes_on_with_more_rounds_and_is_not_that_of_another_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    command = [str(scenario_in(tmp_path)), "--backend", "inline", "--resume-or-start", str(folder)]
    rounds = PLAIN["rounds"]
    assert main(command) == 0
    assert main([*command, "phases.0.local.lr=0.7"]) == 1
    assert f"'{folder}' has a finished run of another scenario: phases.plain.local.lr: " in said(capsys)
    assert main([*command, f"phases.0.rounds={rounds - 1}"]) == 1
    assert f"another scenario: rounds: {rounds}, now {rounds - 1}" in said(capsys)
    assert main([*command, f"phases.0.rounds={rounds + 1}"]) == 0
    assert f"the run continues after round {rounds}" in said(capsys)
    assert RunArchive(folder).rows[-1]["round"] == rounds + 1


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join("".join(capsys.readouterr()).split())


def test_a_run_that_was_killed_before_it_began_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it waits for room on a cluster, it has opened its records and written its status."""
    folder = tmp_path / "one"
    command = [str(scenario_in(tmp_path)), "--backend", "inline", "--resume-or-start", str(folder)]
    with monkeypatch.context() as patch:
        patch.setattr("rayfl.backends.inline.inline_session", killed)
        assert main(command) == 1
    assert {"metrics.jsonl", "status.json"} <= {path.name for path in folder.iterdir()}
    assert not (folder / SCENARIO_FILE).exists()
    assert main(command) == 0
    assert (folder / "model.safetensors").exists()


def killed(*_: object) -> None:
    raise RayflError("killed on purpose")


def test_it_waits_for_the_lock_of_a_process_that_may_be_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with run_lock(tmp_path):
        monkeypatch.setattr("time.sleep", lambda _: (tmp_path / LOCK).unlink())
        load = partial(load_scenario, scenario_in(tmp_path))
        options = resume_or_start(RunOptions(), tmp_path, said.append, load)
    assert said == [
        f"waits up to 120 s for the process that holds '{tmp_path}', unless it is still active",
        f"begins a run in '{tmp_path}'",
    ]
    assert options is not None
    assert (options.folder, options.resume) == (tmp_path, None)


def test_a_run_that_finishes_while_it_waits_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(_: float) -> None:
        (tmp_path / SCENARIO_FILE).write_text(load_scenario(scenario_in(tmp_path)).to_toml())
        (tmp_path / STATUS).write_text('{"status": "finished"}')
        (tmp_path / LOCK).unlink()

    said: list[str] = []
    with run_lock(tmp_path):
        monkeypatch.setattr("time.sleep", finish)
        load = partial(load_scenario, scenario_in(tmp_path))
        assert resume_or_start(RunOptions(), tmp_path, said.append, load) is None
    assert said[1:] == [f"the run in '{tmp_path}' has finished"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume-or-start", "x"], "name a scenario, or use --list"),
        (["femnist_fedavg", "--resume-or-start", "x", "--out", "y"], "--out: has no effect with --resume-or-start"),
        (["femnist_fedavg", "--resume-or-start", "x", "--resume", "y"], "--resume: has no effect with"),
    ],
)
def test_options_without_effect_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err
