"""A run that was interrupted or killed is resumed from its folder, and ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from rich.console import Console

import rayfl
from rayfl.algorithms import CohortSampler, SamplingContext
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.errors import CheckpointError, ResourceError, ScenarioError
from rayfl.interruption import Terminated, TimeOver
from rayfl.runs.checkpoints import FORMAT
from rayfl.runs.run import Run
from tests.algorithms.scene import TanhNet
from tests.callbacks.scene import PLAIN, StopAt
from tests.engine.scenes import TINY
from tests.runs.lifecycle.scene import ROUNDS, EndsAfter, assert_same, rows
from tests.runs.lifecycle.scene import run_scene as run

pytestmark = pytest.mark.usefixtures("written_at_once")

SHORT: dict[str, Any] = {"phases": [PLAIN | {"rounds": 3}]}


@pytest.fixture(scope="module")
def once_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stopped") / "run"


@pytest.fixture
def stopped(once_stopped: Path, written_at_once: None, tmp_path: Path) -> Path:
    """The folder of a run that failed in round 6, with checkpoints of rounds 3 and 4."""
    if not once_stopped.exists():
        with pytest.raises(rayfl.RayflError, match="left on purpose"):
            run(once_stopped, EndsAfter(name="ends", round=6))
    shutil.copytree(once_stopped, tmp_path / "run")
    return tmp_path / "run"


class Bounded(TanhNet):
    """A network whose option is infinite."""

    def __init__(self, num_classes: int, bound: float = math.inf) -> None:
        super().__init__(num_classes)
        self.bound = bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(x)
        return outputs.clamp(max=self.bound)


class LongestAgo(CohortSampler):
    """Draws those that were drawn longest ago; for all others that is for ever."""

    clients: int = 3

    def draw(self, context: SamplingContext) -> list[int]:
        last = context.state.setdefault("last", [-math.inf] * len(context.sizes))
        drawn = sorted(range(len(last)), key=lambda client: (last[client], -client))[: self.clients]
        for client in drawn:
            last[client] = float(context.round)
        return drawn


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("*.json"))


def resumed(folder: Path) -> rayfl.Result:
    return rayfl.run(resume=folder, backend="inline", console=Console(width=10_000))


def test_a_run_that_fails_again_and_again_goes_on_from_its_last_checkpoint(
    undisturbed: rayfl.Result, tmp_path: Path
) -> None:
    for round in (1, 3, 6, 7, ROUNDS):
        with pytest.raises(rayfl.RayflError, match="left on purpose"):
            run(tmp_path, EndsAfter(name="ends", round=round), resume=round > 1)
        assert [path.stem for path in checkpoints(tmp_path)][-1:] == [f"round-{round - 2:09}"] * (round > 2)
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_infinity_in_options_and_in_the_state_of_a_sampler_outlives_a_stop(tmp_path: Path) -> None:
    phase = PLAIN | {"rounds": 5, "cohort": {"sampler": f"{__name__}:LongestAgo"}}
    scene: dict[str, Any] = {"model": f"{__name__}:Bounded", "phases": [phase]}
    undisturbed = run(tmp_path / "undisturbed", **scene)
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path / "stopped", EndsAfter(name="ends", round=4), **scene)
    assert checkpoints(tmp_path / "stopped")
    assert_same(run(tmp_path / "stopped", resume=True, **scene), undisturbed)


def test_a_run_with_code_of_the_program_goes_on_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "Mine", Bounded, raising=False)
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=3), model="__main__:Mine", **SHORT)
    assert f"continue with `rayfl.run(resume='{tmp_path}')` in this program" in capsys.readouterr().out
    monkeypatch.delattr(main, "Mine")
    with pytest.raises(ScenarioError, match=r"has no .Mine.; .*a run can be continued only in the program that beg"):
        resumed(tmp_path)


def test_how_to_go_on_is_said_where_a_run_ends_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=3), **SHORT)
    assert f"continue with `rayfl resume {tmp_path}`" in capsys.readouterr().out


def test_the_first_signal_ends_a_run_with_its_round_and_a_checkpoint(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    """Without `rounds`, nothing but the signal asks for one."""
    with pytest.raises(Terminated):
        run(tmp_path, EndsAfter(name="ends", round=5, how="once"), checkpoint={})
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "SIGTERM")
    (manifest,) = (tmp_path / "checkpoints").glob("*.json")
    assert int(manifest.stem.removeprefix("round-")) == status["committed_rounds"]
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_a_signal_in_the_round_after_which_a_callback_ends_the_run_changes_nothing(tmp_path: Path) -> None:
    ends = StopAt(round=5)
    expected = run(tmp_path / "undisturbed", ends)
    with suppress(Terminated):
        run(tmp_path / "signalled", StopAt(round=5), EndsAfter(name="ends", round=5, how="once"))
    status = json.loads((tmp_path / "signalled" / "status.json").read_text())
    assert (status["status"], status["stopped"]["round"]) == ("finished", 5)
    assert rows(tmp_path / "signalled") == rows(expected.directory)


def test_a_run_that_dies_once_a_callback_has_ended_it_goes_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: dict[str, Any] = {"callbacks": [{"name": "tests.callbacks.scene:StopAt", "round": 5}]}
    expected = run(tmp_path / "undisturbed", **ends)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", lambda run: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "killed", **ends)
    assert checkpoints(tmp_path / "killed")[-1].stem == "round-000000005"
    result = run(tmp_path / "killed", resume=True, **ends)
    assert_same(result, expected)
    stopped = json.loads((tmp_path / "killed" / "status.json").read_text())["stopped"]
    assert (stopped["callback"], stopped["round"]) == ("tests.callbacks.scene:StopAt", 5)


def test_without_that_callback_such_a_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: dict[str, Any] = {"callbacks": [{"name": "tests.callbacks.scene:StopAt", "round": 5}]}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", lambda run: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path, **ends)
    assert rows(run(tmp_path, resume=True).directory)[-1]["round"] == ROUNDS


def test_a_run_whose_minutes_are_over_ends_with_its_round_and_resumes_to_the_same_bits(
    undisturbed: rayfl.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timers: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: timers.append(seconds))
    with pytest.raises(TimeOver):
        run(tmp_path, EndsAfter(name="ends", round=5, how="alarm"), checkpoint={}, minutes=1.5)
    assert timers == [90, 0]
    assert "interrupted (its minutes were over): the run ends after the current round" in capsys.readouterr().out
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "its minutes were over")
    (manifest,) = (tmp_path / "checkpoints").glob("*.json")
    assert 5 <= int(manifest.stem.removeprefix("round-")) == status["committed_rounds"] < ROUNDS
    assert_same(run(tmp_path, resume=True), undisturbed)


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with pytest.raises(Terminated):
        run(tmp_path, EndsAfter(name="ends", round=5, how="twice"), checkpoint={})
    assert json.loads((tmp_path / "status.json").read_text())["committed_rounds"] == 5
    assert not list(tmp_path.glob("checkpoints/*.json"))


KILLED = """
import sys
from pathlib import Path
from tests.runs.lifecycle.scene import EndsAfter, run_scene
run_scene(Path(sys.argv[1]), EndsAfter(name="ends", round=6, how="kill"))
"""


@pytest.mark.slow  # test_reopening.py and test_secure_runs.py go on from what a killed process leaves
def test_a_run_whose_process_was_killed_resumes_without_loss(undisturbed: rayfl.Result, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, stdout=subprocess.DEVNULL)
    assert process.returncode == -signal.SIGKILL
    assert json.loads((folder / "status.json").read_text())["status"] == "running"
    assert_same(run(folder, resume=True), undisturbed)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(
    stopped: Path, undisturbed: rayfl.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    _, last = checkpoints(stopped)
    last.write_text(last.read_text()[:-40])
    assert_same(resumed(stopped), undisturbed)
    told = capsys.readouterr().out
    assert f"the checkpoint '{last}' is damaged" in told
    assert "continues after round 3" in told


def test_a_damaged_state_is_told_and_the_checkpoint_before_is_used(
    stopped: Path, undisturbed: rayfl.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    _, last = checkpoints(stopped)
    of_server = json.loads(json.loads(last.read_text())["body"])["snapshot"]["server"]
    state = stopped / "checkpoints" / "states" / of_server["latest"]["stored"]["place"]
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    assert_same(resumed(stopped), undisturbed)
    told = capsys.readouterr().out
    assert "the checkpoint of round 4" in told
    assert "is damaged: its digest" in told
    assert "continues after round 3" in told


def test_where_no_checkpoint_is_whole_the_run_is_not_quietly_begun_again(stopped: Path) -> None:
    for manifest in checkpoints(stopped):
        manifest.write_text("{}")
    with pytest.raises(ResourceError, match=r"no checkpoint in .* is intact"):
        resumed(stopped)


def test_a_changed_scenario_is_rejected_with_the_differences(stopped: Path) -> None:
    changes = {"phases.stateful.local.lr": 0.5, "phases.cyclic.rounds": 3}
    with pytest.raises(ScenarioError) as caught:
        rayfl.run(resume=stopped, backend="inline", overrides=changes)
    told = str(caught.value)
    assert "phases.stateful.local.lr: 0.1, now 0.5" in told
    assert "phases.cyclic.rounds: 2, now 3, but the phase is complete" in told


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes scenario.toml in the folder of a run."""
    tables = tomllib.loads((folder / "scenario.toml").read_text())
    change(tables)
    (folder / "scenario.toml").write_text(tomli_w.dumps(tables))


def test_a_scenario_that_was_edited_in_the_runs_folder_is_rejected_with_the_keys(stopped: Path) -> None:
    edited(stopped, lambda tables: tables["phases"][1]["local"].update(lr=0.5))
    with pytest.raises(ScenarioError) as caught:
        resumed(stopped)
    assert "phases.stateful.local.lr: 0.1, now 0.5; change them back (scenario.toml may have been edited)" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_what_decides_no_result_may_be_edited_and_callbacks_are_told(
    stopped: Path, undisturbed: rayfl.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(
        stopped,
        lambda tables: tables.update(
            title="Another", resources={"hosts": 1}, checkpoint={"rounds": 3},
            callbacks=[{"name": "periodic_model", "every": 4}],
        ),
    )  # fmt: skip
    assert_same(resumed(stopped), undisturbed)
    assert "warning: callbacks differ from those of the checkpoint: callbacks.0." in capsys.readouterr().out


def test_a_run_of_an_earlier_format_does_not_go_on(stopped: Path) -> None:
    path = stopped / "environment.json"
    environment = json.loads(path.read_text())
    assert environment.pop("place", "missing") is None
    environment["packages"]["rayfl"] = "0.0.9"
    path.write_text(json.dumps(environment))
    before = sorted(stopped.rglob("*"))
    with pytest.raises(ResourceError) as caught:
        resumed(stopped)
    assert str(caught.value) == (
        f"'{stopped}': rayfl 0.0.9 wrote these records in an earlier format, which this rayfl {rayfl.__version__} does "
        "not read: use that one, or run the scenario again"
    )
    assert sorted(stopped.rglob("*")) == before


@pytest.mark.parametrize(("status", "environment"), [("", "\0\0"), ('{"status": 1}', "{}")], ids=["no JSON", "others"])
def test_a_damaged_status_and_environment_do_not_keep_a_run_from_going_on(
    status: str, environment: str, stopped: Path, undisturbed: rayfl.Result, capsys: pytest.CaptureFixture[str]
) -> None:
    (stopped / "status.json").write_text(status)
    (stopped / "environment.json").write_text(environment)
    assert_same(resumed(stopped), undisturbed)
    told = sorted(line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: "))
    assert len(told) == 2
    assert any("status.json" in line and "resumed without it" in line for line in told)
    changed = "your data and code have changed since then cannot be"
    assert any("environment.json" in line and changed in line for line in told)


def test_a_checkpoint_of_a_newer_version_is_an_error_and_not_skipped(stopped: Path) -> None:
    """The one before it is intact, and to continue there would undo the rounds of the newer version."""
    _, last = checkpoints(stopped)
    last.write_text(json.dumps({"format": FORMAT + 1, "content": "of a kind that this version does not know"}))
    before = last.read_bytes()
    complaint = f"has format {FORMAT + 1}, but this version of rayfl reads format {FORMAT}: resume with"
    with pytest.raises(ResourceError, match=complaint) as caught:
        resumed(stopped)
    assert not isinstance(caught.value, CheckpointError), "a grid would start over"
    assert last.read_bytes() == before


BASE = {"weight": 1.0}
"""Frozen weights that a network reads from a place of its own."""


class Based(TanhNet):
    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        torch.nn.init.constant_(self.second.weight.requires_grad_(False), BASE["weight"])


def test_a_run_does_not_go_on_with_other_frozen_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"name": "plain", "rounds": 4, "cohort": 3, "local": {"steps": 2, "batch_size": 4}}
    changes = TINY | {"model": f"{__name__}:Based", "phases": [plain]}
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, EndsAfter(name="ends", round=3), **changes)
    monkeypatch.setitem(BASE, "weight", 2.0)
    with pytest.raises(ScenarioError, match=r"phases\.plain\.model: '.*' began with other frozen parameters than your"):
        resumed(tmp_path)
    monkeypatch.undo()
    assert (resumed(tmp_path).state_dict["second.weight"] == 1).all()


def test_a_run_does_not_go_on_with_weights_in_another_layout(stopped: Path) -> None:
    path = stopped / "environment.json"
    environment = json.loads(path.read_text())
    environment["phases"][0]["model"]["weights"] = "contiguous"
    path.write_text(json.dumps(environment))
    with pytest.raises(rayfl.ScenarioError, match="began with contiguous weights, but it now needs channels_last ones"):
        resumed(stopped)


@pytest.mark.parametrize("on_failure", ["continue", "stop"])
def test_a_folder_that_cannot_be_written_ends_no_run_unless_asked(
    on_failure: str, undisturbed: rayfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    checkpoint = {"rounds": 4, "on_failure": on_failure}
    if on_failure == "stop":
        with pytest.raises(ResourceError, match="cannot write the state"):
            run(tmp_path, checkpoint=checkpoint)
        return
    assert_same(run(tmp_path, checkpoint=checkpoint), undisturbed)
    assert "warning: no checkpoint was written; the run continues: cannot write" in capsys.readouterr().out


def test_only_the_latest_checkpoints_stay_and_only_their_states(undisturbed: rayfl.Result) -> None:
    manifests = checkpoints(undisturbed.directory)
    assert len(manifests) == 2
    named = "".join(path.read_text() for path in manifests)
    states = list((undisturbed.directory / "checkpoints" / "states").rglob("*.safetensors"))
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
    run(tmp_path, **SHORT)
    left = [path.name for path in tmp_path.rglob(".*")]
    assert left == [".being-written.safetensors.4567"]


def test_a_run_under_way_is_not_resumed(tmp_path: Path) -> None:
    class Resumes(Callback):
        def on_start(self, run_: RunSoFar) -> None:
            with pytest.raises(ResourceError, match="is still active"):
                run(tmp_path, resume=True)

    run(tmp_path, Resumes(name="resumes"), **SHORT)


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
    whole = run(tmp_path, checkpoint={}, **SHORT)
    before = rows(tmp_path)
    with pytest.raises(ScenarioError, match=r"seed: \d+, now 1"):
        rayfl.run(resume=tmp_path, backend="inline", overrides={"seed": 1}, console=Console(quiet=True))
    assert rows(whole.directory) == before
