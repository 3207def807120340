"""`rayfl scale` measures short runs as they grow, and says what breaks first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from rayfl.cli import scale as command
from rayfl.config.loader import load_scenario
from rayfl.errors import ResourceError
from rayfl.runs.resolution import resolve
from rayfl.studies.scale import study
from rayfl.studies.scale.measure import SAMPLED, Cost, cost
from rayfl.studies.scale.picture import draw
from rayfl.studies.scale.processes import DRIVER, RAY, ROLES, memory, processor_seconds, roles
from rayfl.studies.scale.study import AXES, Line, Point, first_to_break, loaded, points, rows, save

COST = Cost(0.5, dict.fromkeys(ROLES, 0.1), dict.fromkeys(ROLES, 10**8), 4e6, 4 * 10**6, 10**6)


def with_driver(size: float) -> Cost:
    return replace(COST, memory={**COST.memory, DRIVER: round(size)})


def test_the_smallest_values_of_all_axes_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def cost(scenario: str, overrides: list[str], timeout_s: float) -> Cost:
        asked.append((scenario, overrides))
        if scenario == "scale_model":
            raise ResourceError("the GPU ran out of memory")
        return COST

    monkeypatch.setattr(study, "cost", cost)
    found = list(points({"cohort": (10, 100), "params": (1e3,)}, 60))
    assert [(one.axis, one.value) for one in found] == [("cohort", 10), ("params", 1e3), ("cohort", 100)]
    assert asked[0] == ("scale_cohort", ["phases.scale.cohort=10"])
    assert found[1] == Point("params", 1e3, failure="the GPU ran out of memory")
    assert rows(found)[1][:3] == ("parameters", "1,000", "the GPU ran out of memory")


def test_nothing_begins_once_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 59.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    left: list[float] = []

    def cost(scenario: str, overrides: list[str], timeout_s: float) -> Cost:
        left.append(timeout_s)
        return COST

    monkeypatch.setattr(study, "cost", cost)
    assert len(list(points({"cohort": (1, 2, 3)}, 60))) == 2
    assert left == [59.0, 1.0]


def test_what_breaks_first_is_where_the_line_reaches_the_memory() -> None:
    at = {10.0: 1e8 + 10 * 3e6, 100.0: 1e8 + 100 * 3e6, 400.0: 1e8 + 400 * 3e6}  # 3 MB for each MB of data
    found = [Point("data", value, with_driver(size)) for value, size in at.items()]
    (line,) = first_to_break(found, limit=round(5e8 + 3e6 * 7000))
    assert line.startswith("data: 22 GB of memory are full at about 7,000 MB of data; most of it is in the driver, ")
    assert line.endswith(" 3,000,000 bytes for each")
    assert first_to_break([Point("data", 1, COST), Point("data", 2, COST)], 10**9) == [], "nothing grows"
    assert Line(5.0, 0.0).reaches(10.0) == float("inf")


def test_measurements_are_kept_and_drawn(tmp_path: Path) -> None:
    found = [Point(name, value, COST) for name, axis in AXES.items() for value in axis.values]
    found.append(Point("hosts", 64, failure="64 workers do not fit"))
    save(found, tmp_path / "scale.json")
    assert loaded(tmp_path / "scale.json") == found
    for some in (found, []):
        draw(some, tmp_path / "scale.png")
        assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_logarithmic_axes_have_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def read(figure: Figure, path: Path) -> None:
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            shown.extend(label.get_text() for label in axis.get_ticklabels(which="both"))

    monkeypatch.setattr("rayfl.studies.scale.picture.write", read)
    draw([Point(name, value, COST) for name, axis in AXES.items() for value in axis.values], Path("scale.png"))
    assert {"10", "100", "1000"} <= {*shown}
    assert not [text for text in shown if "$" in text], "texts are no formulas"


@pytest.mark.parametrize("name", AXES)
def test_every_axis_grows_what_it_names(name: str) -> None:
    axis = AXES[name]
    for value in axis.values:
        scenario = resolve(load_scenario(axis.scenario, overrides=axis.overrides(value)))
        cohort = scenario.phases[0].model_dump()["cohort"]
        assert scenario.phases[0].rounds >= SAMPLED + 2
        options: dict[str, Any] = dict(scenario.data.options or {})
        grown = {
            "clients": options.get("clients"),
            "cohort": cohort,
            "hosts": scenario.resources.hosts,
            "params": scenario.model.options.get("params"),
            "data": 4 * options.get("values", 0) * options.get("each", 0) * options.get("clients", 0) / 1e6,
            "states": cohort,
        }
        assert float(grown[name]) == pytest.approx(value, rel=0.01)


def test_the_command_knows_the_axes() -> None:
    assert tuple(AXES) == command.NAMES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cohort", "many"], "argument --cohort: 'many' is not a list of numbers such as 10,1e3"),
        (["--cohort", "10,0"], "argument --cohort: '10,0' must have numbers above 0 and below 1e12"),
        (["--only", "clients", "--hosts", "1,2"], "--hosts: has no effect on the axes of --only; leave it out"),
        (["--hosts", "1.5"], "argument --hosts: '1.5' must have whole numbers"),
        (["--budget", "0"], "argument --budget: '0' is not a number of minutes above 0"),
        (["--budget", "nan"], "argument --budget: 'nan' is not a number of minutes above 0"),
        (["--only", "scale_cohort"], "argument --only: invalid choice: 'scale_cohort' (choose from"),
    ],
)
def test_wrong_values_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments, prog="rayfl scale")
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_that_cannot_be_made_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert command.main(["--out", str(tmp_path / "file" / "scale")], prog="rayfl scale") != 0
    told = capsys.readouterr().err.strip()
    assert told.endswith("file/scale: Not a directory; name a folder that can be written to")
    assert "\n" not in told


@pytest.mark.takes("a process of its own, which loads rayfl")
def test_what_a_scenario_refuses_is_the_failure_of_the_measurement() -> None:
    with pytest.raises(ResourceError, match=r"^phases\.scale\.cohort: 20 clients per round, but there are 5"):
        cost("scale_clients", ["data.options.clients=5"], 300)


def test_a_cohort_above_a_thousand_has_as_many_registered_clients() -> None:
    for cohort, clients in ((100, 1000), (5000, 5000)):
        scenario = resolve(load_scenario("scale_cohort", overrides=AXES["cohort"].overrides(cohort)))
        assert scenario.data.options["clients"] == clients


def test_processes_are_found_by_role() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert roles()[os.getpid()] == DRIVER
        assert roles()[process.pid] == RAY
        assert memory()[DRIVER] > memory()[RAY] > 10**6
        assert processor_seconds()[DRIVER] > 0
        process.communicate(b"\n")


@pytest.mark.slow
@pytest.mark.ray
def test_memory_grows_with_data_and_not_with_clients_on_ray(tmp_path: Path) -> None:
    arguments = ["--only", "clients", "data", "--clients", "1e3,1e5", "--data", "1,60", "--out", str(tmp_path)]
    assert command.main([*arguments, "--budget", "8"], prog="rayfl scale") == 0
    by_axis = {name: study.of_axis(loaded(tmp_path / "scale.json"), name) for name in ("clients", "data")}
    for name, (least, most) in by_axis.items():
        grown = sum(most[1].memory.values()) - sum(least[1].memory.values())
        assert grown < (250 * 1e5 + 60e6 if name == "clients" else 3 * 60e6 + 60e6), json.dumps(grown)
