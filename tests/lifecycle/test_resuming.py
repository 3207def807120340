"""A run that was interrupted or killed is resumed from its folder, and ends with the bits of an undisturbed one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.checkpoint.checkpoints import FORMAT
from rayfl.errors import CheckpointError, ResourceError, ScenarioError
from rayfl.interruption import Terminated
from rayfl.report.recorded_metrics import read_rows
from tests.callbacks.scene import tables
from tests.lifecycle.scene import ROUNDS, SCENE

pytestmark = pytest.mark.usefixtures("no_picture")


class EndsAfter(Callback):
    """Ends a run after a round: `error` raises, others send a signal, once or twice."""

    round: int
    how: str = "error"

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round != self.round:
            return
        if self.how == "error":
            raise RuntimeError("left on purpose")
        for _ in range(2 if self.how == "twice" else 1):
            os.kill(os.getpid(), signal.SIGTERM)


def run(folder: Path, ends: EndsAfter | None = None, resume: bool = False, **changes: Any) -> rayfl.Result:
    where: Any = {"resume": folder} if resume else {"folder": folder}
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 1}} | changes
    callbacks = [] if ends is None else [ends]
    return rayfl.run(scenario, backend="inline", callbacks=callbacks, console=Console(quiet=True), **where)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> rayfl.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rayfl.lifecycle.launch.draw", lambda *_: None)
        return run(tmp_path_factory.mktemp("undisturbed") / "run")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_rows(folder)]


def assert_same(result: rayfl.Result, undisturbed: rayfl.Result) -> None:
    assert all(torch.equal(result.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    assert rows(result.directory) == rows(undisturbed.directory)
    assert json.loads((result.directory / "status.json").read_text())["status"] == "finished"


@pytest.mark.parametrize("round", range(1, ROUNDS + 1))
@pytest.mark.quick_third
def test_a_run_that_failed_after_any_round_goes_on_from_its_last_checkpoint(
    round: int, undisturbed: rayfl.Result, tmp_path: Path
) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=round))
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_how_to_go_on_is_said_where_a_run_ends_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = EndsAfter(name="ends", round=4)
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        rayfl.run(
            tables(**SCENE) | {"checkpoint": {"rounds": 1}}, backend="inline", folder=tmp_path, callbacks=[ends],
            console=Console(width=1000),
        )  # fmt: skip
    assert f"continue with `rayfl resume {tmp_path}`" in capsys.readouterr().out


def test_its_scenario_need_not_be_named_again(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=4))
    assert_same(rayfl.run(resume=tmp_path, backend="inline", console=Console(quiet=True)), undisturbed)


def test_the_first_signal_ends_a_run_with_its_round_and_a_checkpoint(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    """Without `rounds`, nothing but the signal asks for one."""
    with pytest.raises(Terminated):
        run(tmp_path, EndsAfter(name="ends", round=5, how="once"), checkpoint={})
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "SIGTERM")
    (manifest,) = (tmp_path / "checkpoints").glob("*.json")
    assert int(manifest.stem.removeprefix("round-")) == status["committed_rounds"]
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with pytest.raises(Terminated):
        run(tmp_path, EndsAfter(name="ends", round=5, how="twice"), checkpoint={})
    assert json.loads((tmp_path / "status.json").read_text())["committed_rounds"] == 5
    assert not list(tmp_path.glob("checkpoints/*.json"))


KILLED = """
import sys
from pathlib import Path
from rich.console import Console
import rayfl
from tests.callbacks.scene import tables
from tests.lifecycle.scene import SCENE
rayfl.run(tables(**SCENE) | {"checkpoint": {"rounds": 1}}, backend="inline", folder=sys.argv[1])
"""


def test_a_run_whose_process_was_killed_resumes_without_loss(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoints/*.json")) and time.monotonic() < deadline:
        assert process.poll() is None
    process.kill()
    process.wait()
    assert_same(run(folder, resume=True), undisturbed)


@pytest.mark.slow
def test_a_run_without_a_checkpoint_begins_again(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=5), checkpoint={"ends": False, "minutes": 0})
    assert not (tmp_path / "checkpoints").exists()
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(
    undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=6))
    *_, last = sorted((tmp_path / "checkpoints").glob("*.json"))
    last.write_text(last.read_text()[:-40])
    result = rayfl.run(resume=tmp_path, backend="inline", console=Console(width=1000))
    assert f"the checkpoint '{last}' is damaged" in capsys.readouterr().out
    assert_same(result, undisturbed)


def test_a_damaged_state_is_told_and_the_checkpoint_before_is_used(
    undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=6))
    before, last = sorted((tmp_path / "checkpoints").glob("*.json"))
    of_server = [json.loads(json.loads(path.read_text())["body"])["snapshot"]["server"] for path in (before, last)]
    state = tmp_path / "checkpoints" / "states" / of_server[1]["latest"]["stored"]["place"]
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    result = rayfl.run(resume=tmp_path, backend="inline", console=Console(width=1000))
    told = capsys.readouterr().out
    assert "the checkpoint of round" in told
    assert "is damaged: its digest" in told
    assert_same(result, undisturbed)


def test_where_no_checkpoint_is_whole_the_run_is_not_quietly_begun_again(tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=6))
    for manifest in (tmp_path / "checkpoints").glob("*.json"):
        manifest.write_text("{}")
    with pytest.raises(ResourceError, match=r"no checkpoint in .* is intact"):
        run(tmp_path, resume=True)


def test_a_changed_scenario_is_rejected_with_the_differences(tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=4))
    with pytest.raises(ScenarioError) as caught:
        rayfl.run(
            resume=tmp_path, backend="inline", overrides={"phases.stateful.local.lr": 0.5, "phases.cyclic.rounds": 3}
        )
    told = str(caught.value)
    assert "phases.stateful.local.lr: 0.1, now 0.5" in told
    assert "phases.cyclic.rounds: 2, now 3, but the phase is complete" in told


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes scenario.toml in the folder of a run."""
    tables = tomllib.loads((folder / "scenario.toml").read_text())
    change(tables)
    (folder / "scenario.toml").write_text(tomli_w.dumps(tables))


def test_a_scenario_that_was_edited_in_the_runs_folder_is_rejected_with_the_keys(tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=4))
    edited(tmp_path, lambda tables: tables["phases"][1]["local"].update(lr=0.5))
    with pytest.raises(ScenarioError) as caught:
        rayfl.run(resume=tmp_path, backend="inline", console=Console(quiet=True))
    assert "phases.stateful.local.lr: 0.1, now 0.5; change them back (scenario.toml may have been edited)" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_what_decides_no_result_may_be_edited_and_callbacks_are_told(
    undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=4))
    edited(
        tmp_path,
        lambda tables: tables.update(
            title="Another", resources={"hosts": 1}, checkpoint={"rounds": 3},
            callbacks=[{"name": "periodic_model", "every": 4}],
        ),
    )  # fmt: skip
    result = rayfl.run(resume=tmp_path, backend="inline", console=Console(width=1000))
    assert "warning: callbacks differ from those of the checkpoint: callbacks.0." in capsys.readouterr().out
    assert_same(result, undisturbed)


def test_a_checkpoint_without_its_scenario_is_resumed_and_that_is_said(
    undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As older versions wrote them."""
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=4))
    for path in (tmp_path / "checkpoints").glob("*.json"):
        manifest = json.loads(path.read_text())
        content = json.loads(manifest["body"])
        del content["records"]["scenario"]
        body = json.dumps(content)
        path.write_text(json.dumps(manifest | {"body": body, "digest": hashlib.sha256(body.encode()).hexdigest()}))
    result = rayfl.run(resume=tmp_path, backend="inline", console=Console(width=1000))
    assert "did not record the scenario in it, so a change of scenario.toml since then would go" in (
        capsys.readouterr().out
    )
    assert_same(result, undisturbed)


@pytest.mark.parametrize("content", ["", "{}", '{"status": 1}', "\0\0"])
@pytest.mark.parametrize("name", ["status.json", "environment.json"])
def test_a_damaged_status_or_environment_does_not_keep_a_run_from_going_on(
    name: str, content: str, undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=8))
    (tmp_path / name).write_text(content)
    result = rayfl.run(resume=tmp_path, backend="inline", console=Console(width=1000))
    assert_same(result, undisturbed)
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if line.startswith("warning: ")]
    assert name in line
    done = "resumed without it" if name == "status.json" else "your data and code have changed since then cannot be"
    assert done in line


def test_a_checkpoint_of_a_newer_version_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    """The one before it is intact, and to continue there would undo the rounds of the newer version."""
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=6))
    *_, last = sorted((tmp_path / "checkpoints").glob("*.json"))
    last.write_text(json.dumps({"format": FORMAT + 1, "content": "of a kind that this version does not know"}))
    before = last.read_bytes()
    complaint = f"has format {FORMAT + 1}, but this version of rayfl reads format {FORMAT}: resume with"
    with pytest.raises(ResourceError, match=complaint) as caught:
        run(tmp_path, resume=True)
    assert not isinstance(caught.value, CheckpointError), "a grid would start over"
    assert last.read_bytes() == before


def test_a_run_does_not_go_on_with_weights_in_another_layout(tmp_path: Path) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=2))
    path = tmp_path / "environment.json"
    environment = json.loads(path.read_text())
    environment["phases"][0]["model"]["weights"] = "contiguous"
    path.write_text(json.dumps(environment))
    with pytest.raises(rayfl.ScenarioError, match="began with contiguous weights, but your code now needs channels_la"):
        run(tmp_path, resume=True)


def test_a_finished_run_goes_on_for_more_rounds(tmp_path: Path) -> None:
    longer = [*SCENE["phases"][:-1], SCENE["phases"][-1] | {"rounds": 5}]
    whole = run(tmp_path / "whole", phases=longer)
    run(tmp_path / "run")
    more = rayfl.run(
        resume=tmp_path / "run", backend="inline", overrides={"phases.adaptive.rounds": 5}, console=Console(quiet=True)
    )
    assert all(torch.equal(more.state_dict[name], value) for name, value in whole.state_dict.items())
    assert rows(more.directory)[-1] == rows(whole.directory)[-1]


@pytest.mark.parametrize("on_failure", ["continue", "stop"])
def test_a_folder_that_cannot_be_written_ends_no_run_unless_asked(
    on_failure: str, undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 4, "on_failure": on_failure}}
    if on_failure == "stop":
        with pytest.raises(ResourceError, match="cannot write the state"):
            rayfl.run(scenario, backend="inline", folder=tmp_path, console=Console(width=1000))
        return
    result = rayfl.run(scenario, backend="inline", folder=tmp_path, console=Console(width=1000))
    assert "warning: no checkpoint was written; the run continues: cannot write" in capsys.readouterr().out
    assert_same(result, undisturbed)


def test_only_the_latest_checkpoints_stay_and_only_their_states(tmp_path: Path) -> None:
    run(tmp_path, checkpoint={"rounds": 1, "keep": 2})
    manifests = sorted((tmp_path / "checkpoints").glob("*.json"))
    assert len(manifests) == 2
    named = "".join(path.read_text() for path in manifests)
    states = list((tmp_path / "checkpoints" / "states").rglob("*.safetensors"))
    assert states
    assert all(state.name in named for state in states)


def test_leftovers_of_a_killed_writer_go_with_a_later_checkpoint(tmp_path: Path) -> None:
    states = tmp_path / "checkpoints" / "states"
    states.mkdir(parents=True)
    for name in (".abc.safetensors.0123", "../.round-000000001.json.0123"):
        (states / name).write_text("half of it")
        os.utime(states / name, (1.0, 1.0))
    (states / ".being-written.safetensors.4567").write_text("half of it")
    os.utime(states / ".being-written.safetensors.4567", (4e9, 4e9))
    run(tmp_path, checkpoint={"rounds": 1})
    left = [path.name for path in tmp_path.rglob(".*")]
    assert left == [".being-written.safetensors.4567"]


def test_a_run_under_way_is_not_resumed(tmp_path: Path) -> None:
    class Resumes(Callback):
        def on_start(self, run_: RunSoFar) -> None:
            with pytest.raises(ResourceError, match="is still active"):
                run(tmp_path, resume=True)

    run_with = tables(**SCENE)
    rayfl.run(run_with, backend="inline", folder=tmp_path, callbacks=[Resumes], console=Console(quiet=True))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"minutes": -1}, "checkpoint.minutes"),
        ({"keep": 0}, "checkpoint.keep"),
        ({"on_failure": "ignore"}, "checkpoint.on_failure"),
        ({"every": 3}, "checkpoint.every"),
    ],
)
def test_a_wrong_key_is_named(wrong: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        run(tmp_path, checkpoint=wrong)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"has no run to resume: there is no scenario.toml"):
        rayfl.run(resume=tmp_path, backend="inline")


def test_another_scenario_does_not_wipe_out_a_run_that_has_no_checkpoint(tmp_path: Path) -> None:
    whole = run(tmp_path, checkpoint={})
    before = rows(tmp_path)
    with pytest.raises(ScenarioError, match=r"seed: \d+, now 1"):
        rayfl.run(resume=tmp_path, backend="inline", overrides={"seed": 1}, console=Console(quiet=True))
    assert rows(whole.directory) == before
