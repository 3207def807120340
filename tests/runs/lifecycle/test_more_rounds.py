"""`rayfl resume RUN --more 2`: a finished run goes on beyond its end, as if it had been that long from the start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from rich.console import Console
from safetensors.numpy import load_file

import rayfl
from rayfl.__main__ import main
from rayfl.runs.archive import RunArchive
from tests.callbacks.scene import tables
from tests.runs.lifecycle.scene import LOCAL, NOISE

FIRST = {"name": "first", "rounds": 1, "cohort": 3}
LAST: dict[str, dict[str, Any]] = {
    "relay": {"schedule": "relay", "cohort": 4},
    "stateful": {"algorithm": "scaffold"},
    "private samples": {"local": LOCAL | {"dp": NOISE}},
    "private clients": {
        "cohort": {"bernoulli": 0.5},
        "dp": {"level": "central", "noise_multiplier": 2.0, "clip_norm": 0.5, "delta": 1e-5, "accountant": "rdp"},
        "algorithm": {"name": "fedavg", "weighting": "uniform"},
    },
}


def scenario(rounds: int, **changes: Any) -> dict[str, Any]:
    last: dict[str, Any] = {
        "name": "last",
        "rounds": rounds,
        "cohort": 5,
        "local": {"lr": 0.1, "batch_size": 4},
    } | changes
    phases = [last] if "dp" in last or "dp" in last["local"] else [FIRST, last]
    return tables(phases=phases, checkpoint={"rounds": 1}, resources={})


def run(folder: Path, rounds: int, beside: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> Path:
    """`changes` are to the last phase, `beside` to other tables."""
    tables = scenario(rounds, **changes) | dict(beside)
    rayfl.run(tables, backend="inline", folder=folder, console=Console(quiet=True))
    return folder


def left(folder: Path) -> tuple[Any, ...]:
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in RunArchive(folder).rows]
    model = {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}
    private = folder / "privacy.json"
    return rows, model, json.loads(private.read_text()) if private.exists() else None


def more(folder: Path, *arguments: str) -> int:
    return main(["resume", str(folder), *arguments, "--backend", "inline"])


@pytest.mark.parametrize("last", LAST)
def test_a_run_that_is_extended_is_one_that_was_longer_from_the_start(last: str, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", 1, **LAST[last])
    assert more(folder, "--more", "2") == 0
    assert left(folder) == left(run(tmp_path / "whole", 3, **LAST[last]))


def edit(folder: Path, before: str, now: str) -> None:
    """Changes scenario.toml in the folder of a run."""
    text = (folder / "scenario.toml").read_text()
    assert text.count(before) == 1
    (folder / "scenario.toml").write_text(text.replace(before, now))


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """What a run of four rounds leaves."""
    return left(run(tmp_path_factory.mktemp("longer") / "run", 4))


@pytest.mark.parametrize("checkpoint", [{"rounds": 1}, {}], ids=["with a checkpoint", "without"])
def test_a_finished_run_whose_scenario_file_has_more_rounds_now_goes_on(
    checkpoint: dict[str, Any], longer: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "run", 2, {"checkpoint": checkpoint})
    edit(folder, "rounds = 2", "rounds = 4")
    assert more(folder) == 0
    assert left(folder) == longer
    assert more(folder) == 1
    assert "has finished; add rounds with --more" in " ".join(capsys.readouterr().err.split())


def test_a_run_whose_callback_stopped_it_goes_on_after_that_callback_was_edited(
    longer: tuple[Any, ...], tmp_path: Path
) -> None:
    stops = {"callbacks": [{"name": "tests.callbacks.scene:StopAt", "round": 2}]}
    folder = run(tmp_path / "run", 4, stops)
    assert more(folder) == 1
    edit(folder, "round = 2", "round = 9")
    assert more(folder) == 0
    assert left(folder) == longer


def test_a_run_that_was_extended_after_its_last_checkpoint_is_finished(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", 2)
    assert more(folder, "--more", "1", "checkpoint.rounds=0") == 0
    assert more(folder) == 1


def test_a_short_run_without_a_checkpoint_is_run_again_to_the_same_end(
    longer: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "run", 2, {"checkpoint": {}})
    assert more(folder, "phases.last.rounds=4") == 0
    assert "has no checkpoint: the run starts over" in " ".join(capsys.readouterr().out.split())
    assert left(folder) == longer


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"local": {"lr": 0.1, "batch_size": 4, "round_schedule": "cosine"}}, "round_schedule"),
        (
            {"local": LOCAL | {"dp": {"target_epsilon": 50.0, "max_grad_norm": 1.0, "accountant": "rdp"}}},
            "target_epsilon",
        ),
    ],
)
def test_runs_that_depend_on_the_number_of_rounds_are_not_extended(
    changes: dict[str, Any], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path, 2, **changes)
    before = left(folder)
    assert more(folder, "--more", "2") == 1
    assert complaint in capsys.readouterr().err
    assert left(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "femnist_cyclic", "--more", "2"], "--more: only works with --resume"),
        (["resume", "runs/x", "--more", "0"], "--more: adds a number of rounds above 0 to the run's own scenario"),
        (
            ["resume", "runs/x", "tiny", "--more", "1"],
            "--more: adds a number of rounds above 0 to the run's own scenario",
        ),
        (["resume", "runs/x", "--list"], "unrecognized arguments: --list"),
    ],
)
def test_more_is_for_runs_that_are_resumed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"error: {message}\n" in capsys.readouterr().err


def test_a_run_that_is_resumed_has_no_quick_form_and_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "run", 2)
    assert more(folder, "--quick") == 1
    said = "error: quick: has no effect on the own scenario of a run that is resumed; leave it out\n"
    assert capsys.readouterr().err == said

    def refused(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rayfl.runs.folder.tempfile.TemporaryFile", refused)
    assert more(folder, "--more", "1") == 1
    said = f"error: cannot write to the output folder '{folder}': Permission denied; make it writable\n"
    assert capsys.readouterr().err == said
