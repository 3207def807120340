"""Learning curves on algorithm pages: settings, kept records and pictures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import rayfl
from rayfl.algorithms import algorithms
from rayfl.engine.plan.scenario_checks import check_scenario
from rayfl.runs.resolution import resolve
from tools.algorithm_curves import __main__ as command
from tools.algorithm_curves import records
from tools.algorithm_curves.drawing import GREY, SMOOTH, figure_of
from tools.algorithm_curves.settings import CURVES, NO_CURVE, SETTINGS, Curve, curve_of, reference_of, scenario

NAMES = [curve.name for curve in CURVES]


def tiny(curve: Curve) -> dict[str, Any]:
    """A curve's scenario with five rounds on four generated writers."""
    found = scenario(curve)
    found["data"] |= {"name": "handwriting", "source": "auto", "clients": 4, "partition": "natural"}
    found["phases"][0] |= {"rounds": 5, "cohort": 2}
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Records of FedProx and FedAvg in their tiny scenarios, which are the scenarios while this lasts."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "scenario", tiny)
        for name in ("fedavg", "fedprox"):
            records.run(curve_of(name), folder)
        yield folder


def accuracies(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["test_accuracy"] for line in lines]


def test_every_registered_algorithm_has_a_curve_or_a_reason() -> None:
    drawn = {curve.algorithm for curve in CURVES}
    assert sorted([*drawn, *NO_CURVE]) == sorted(algorithms)
    assert all(reason.endswith(".") for reason in NO_CURVE.values())


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
def test_rayfl_accepts_every_scenario_and_fedavg_has_one_in_the_same_setting(curve: Curve) -> None:
    check_scenario(resolve(rayfl.load_scenario(scenario(curve))))
    reference = reference_of(curve)
    assert scenario(reference)["data"] == scenario(curve)["data"]
    assert scenario(reference)["model"] == scenario(curve)["model"]


def test_no_two_curves_share_their_records() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_a_run_is_kept_as_a_folder_that_rayfl_reads_until_its_scenario_changes(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fedprox = curve_of("fedprox")
    assert records.is_kept(fedprox, kept)
    assert not records.is_kept(curve_of("moon"), kept)
    (row,) = rayfl.compare(kept / "fedprox", metrics=["test_accuracy"]).table.to_pylist()
    assert (row["label"], row["mean"]) == ("FedProx", accuracies(kept / "fedprox")[-1])
    monkeypatch.setattr(records, "scenario", lambda curve: tiny(curve) | {"seed": 1})
    assert not records.is_kept(fedprox, kept)


def test_a_picture_shows_the_records_smoothed_with_fedavg_in_grey(kept: Path) -> None:
    figure = figure_of(curve_of("fedprox"), kept)
    lines = figure.axes[0].lines
    for line, name in zip(lines, ("fedprox", "fedavg"), strict=True):
        inner = 100 * np.convolve(accuracies(kept / name), np.full(SMOOTH, 1 / SMOOTH), "valid")
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float)[1:-1], inner)
    for shown in (lines, figure.legends[0].get_lines()):
        assert [to_hex(line.get_color()) == GREY for line in shown] == [False, True]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FedProx", "FedAvg"]


def test_the_picture_of_fedavg_has_no_reference_line(kept: Path) -> None:
    (line,) = figure_of(curve_of("fedavg"), kept).axes[0].lines
    assert to_hex(line.get_color()) != GREY


def test_an_interrupted_call_continues_with_what_is_missing(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(curve: Curve, folder: Path) -> None:
        ran.append(curve.name)
        shutil.copytree(kept / curve.name, folder / curve.name)

    monkeypatch.setattr(command, "run", run)
    options = ["--records", str(tmp_path / "records"), "--figures", str(tmp_path / "figures")]
    command.main(["fedavg", *options])
    command.main(["fedavg", "fedprox", *options])
    assert ran == ["fedavg", "fedprox"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["fedavg.png", "fedprox.png"]
    assert all(path.stat().st_size < 30_000 for path in (tmp_path / "figures").iterdir())


def test_an_algorithm_without_a_curve_cannot_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["orchestra"])
    assert "there is no curve of 'orchestra'; known: fedavg, fedprox" in capsys.readouterr().err


def test_every_setting_is_used() -> None:
    assert {curve.setting for curve in CURVES} == set(SETTINGS)
