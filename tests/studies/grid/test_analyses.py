"""The analyses of a grid, from its file to the pictures, on a small scenario."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tomli_w
from rich.console import Console

import rayfl
from rayfl.errors import ScenarioError
from rayfl.studies.analysis.analysis import Analysis, names_of, new_figure
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.grid.execution import GridResult
from rayfl.studies.grid.schema import load_grid
from tests.callbacks import scene
from tests.studies.analysis.scene import analysed

KEEP = {"name": "periodic_model", "every": 1}
SHORT = {"plain": {"rounds": 2}}


class Alone(Analysis):
    """Takes one run, and reads records that only a finished one has."""

    most_runs = 1
    title = "alone"

    def units(self, runs: Any) -> Any:
        return list(range(len(runs[0].rows)))

    cost = compute = draw = units  # type: ignore[assignment]


def tables(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Two rows by one column, two seeds; two rounds of a relay, then two of FedAvg, with every model kept."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "small.toml").write_text(tomli_w.dumps(scene.tables() | {"quick": {"phases.plain.rounds": 2}}))
    return {
        "name": "pictured",
        "scenario": str(tmp_path / "small.toml"),
        "seeds": [3, 4],
        "overrides": {"callbacks": [KEEP], "phases": SHORT},
        "rows": {"slow": {}, "fast": {"phases": {"plain": {"local": {"lr": 0.2}}}}},
        "columns": {"all": {}},
        "analyses": [{"name": "gains"}],
    } | changes


def run(tmp_path: Path, changes: Mapping[str, Any] | None = None, **options: Any) -> GridResult:
    given: dict[str, Any] = {"backend": "inline", "console": Console(quiet=True)} | options
    return rayfl.grid(tables(tmp_path, **(changes or {})), out=tmp_path, **given)


def rows(result: GridResult, label: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = pq.read_table(result.directory / "analyses" / f"{label}.parquet").to_pylist()
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> GridResult:
    """A grid with three analyses of other runs."""
    analyses = [
        {"name": "gains", "rounds": [3]},
        {"name": "gains", "label": "all gains", "only": ["slow/*"], "seeds": [3, 4]},
        {"name": "variance", "weights": 20, "quick": {"weights": 5}},
    ]
    return run(tmp_path_factory.mktemp("finished"), changes={"analyses": analyses})


def test_an_analysis_of_a_grid_is_the_one_of_the_command_line_on_the_same_runs(
    finished: GridResult, tmp_path: Path
) -> None:
    runs = [RunFolder.read(finished.directory / row / "all" / "seed_3") for row in ("slow", "fast")]
    assert rows(finished, "gains") == analysed("gains", *runs, out=tmp_path, rounds=[3])
    assert len(rows(finished, "variance")) == 2 * 2 * 21


def test_only_and_seeds_choose_the_runs_in_the_order_of_the_grid(finished: GridResult, tmp_path: Path) -> None:
    runs = [RunFolder.read(finished.directory / "slow" / "all" / f"seed_{seed}") for seed in (3, 4)]
    assert rows(finished, "all_gains") == analysed("gains", *runs, out=tmp_path)


def test_the_table_names_the_pictures(finished: GridResult) -> None:
    pictures = [f"analyses/{name}.png" for name in ("gains", "all_gains", "variance")]
    assert f"Analyses of these runs: {', '.join(pictures)}." in (finished.directory / "table.md").read_text()
    assert all((finished.directory / picture).stat().st_size > 1000 for picture in pictures)
    assert (finished.directory / "analyses" / "gains.pdf").is_file()


def test_a_second_call_computes_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    picture = tmp_path / "pictured" / "analyses" / "gains.png"
    picture.unlink()
    run(tmp_path, console=Console())
    assert "cost     nothing: this analysis is finished; drawing it again" in capsys.readouterr().out
    assert picture.is_file()
    picture.unlink()
    result = run(tmp_path, console=Console(), table_only=True)
    assert picture.is_file()
    assert not result.failed_analyses


def test_quick_takes_its_own_options(tmp_path: Path) -> None:
    analyses = [{"name": "variance", "weights": 20, "rounds": [3, 4], "quick": {"weights": 5, "rounds": [3]}}]
    result = run(tmp_path, quick=True, changes={"analyses": analyses})
    assert len(rows(result, "variance")) == 2 * 1 * 6


def test_an_analysis_that_lacks_a_run_is_left_out_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, console=Console(width=300), only=["slow/*"])
    assert "left out, since runs have not finished: fast / all / seed 3\n" in capsys.readouterr().out
    assert not (result.directory / "analyses").exists()
    assert "Analyses" not in (result.directory / "table.md").read_text()
    run(tmp_path, console=Console(width=300), table_only=True)
    assert "left out" in capsys.readouterr().out


def test_table_only_computes_no_analysis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, changes={"analyses": []})
    result = run(tmp_path, console=Console(), table_only=True)
    assert "not computed yet; leave out --table-only to compute it" in capsys.readouterr().out
    assert not (result.directory / "analyses").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"analyses": [{"name": "gain"}]},
            "analyses.gain: unknown analysis 'gain'; did you mean 'gains'",
        ),
        ({"analyses": [{"name": "gains", "sample": 3}]}, "analyses.gains: sample"),
        ({"analyses": [{"name": "gains", "quick": {"sample": 3}}]}, "analyses.gains: sample"),
        ({"analyses": [{"name": "gains"}, {"name": "gains"}]}, "analyses.gains: another analysis has the same name"),
        ({"analyses": [{"name": "gains", "only": ["quick/*"]}]}, "analyses.gains.only: there is no row 'quick'"),
        ({"analyses": [{"name": "gains", "seeds": [0]}]}, "analyses.gains.seeds: 0 is not among the seeds"),
        (
            {"analyses": [{"name": "gains", "only": ["slow/all"]}], "skip": ["slow/*"]},
            "analyses.gains.only: all these cells are in skip",
        ),
        (
            {"overrides": {"phases": SHORT}},
            'would not keep the model after round 3: add { name = "periodic_model", every = 3 } to their callbacks',
        ),
        (
            {"overrides": {"phases": SHORT, "callbacks": [KEEP | {"keep": 1}]}},
            "the runs would not keep the model after round 3",
        ),
        (
            {"analyses": [{"name": "gains", "rounds": [5]}]},
            "gains: rounds: the run 'seed_3' has rounds 1 to 4",
        ),
        (
            {"analyses": [{"name": "gains", "rounds": [1]}]},
            "analyses.gains: phases.cyclic: its rounds have no local models",
        ),
        (
            {"analyses": [{"name": f"{__name__}:Alone"}]},
            "takes at most 1 runs at once; you named 2",
        ),
    ],
)
def test_what_is_wrong_is_named_before_any_run(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        run(tmp_path, changes=changes)
    assert message in str(raised.value)
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_what_only_records_tell_stops_no_run(tmp_path: Path) -> None:
    """`curve` needs as many evaluated rounds as its window, which are known once the runs have finished."""
    grid = tables(tmp_path, analyses=[{"name": "curve", "only": ["slow/*"]}, {"name": "gains"}])
    result = rayfl.grid(grid, backend="inline", out=tmp_path, console=Console(quiet=True))
    assert "has 4 evaluated rounds, fewer than 41" in result.failed_analyses["curve"]
    assert not result.failed
    assert rows(result, "gains")


def test_what_the_command_line_takes_from_an_analysis_leaves_it_out_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(
        tmp_path, console=Console(width=300), overrides={"callbacks": []}, changes={"overrides": {"phases": SHORT}}
    )
    assert "warning: analyses.gains: the runs would not keep the model after round 3" in capsys.readouterr().out
    assert not result.failed_analyses
    assert len(result.table) == 4


def test_tasks_lend_the_first_one(tmp_path: Path) -> None:
    grid = load_grid(tables(tmp_path, tasks=2))
    places = grid.analysed(grid.analyses[0])
    assert [(place.row, place.seed, place.task) for place in places] == [("slow", 3, 0), ("fast", 3, 0)]


def test_pictures_name_runs_of_a_grid_by_what_differs(finished: GridResult) -> None:
    def of(*places: str) -> list[RunFolder]:
        return [RunFolder.read(finished.directory / place) for place in places]

    starts = of("slow/all/seed_3", "fast/all/seed_3")
    assert names_of(starts) == ["slow", "fast"]
    assert names_of(of("slow/all/seed_3", "fast/all/seed_4")) == ["slow / seed 3", "fast / seed 4"]
    assert names_of(starts[:1]) == ["pictured: slow / all / seed 3"]
    heading = new_figure("Gains", starts, 7, 4).get_suptitle()
    assert heading.replace("\N{NO-BREAK SPACE}", " ") == "Gains: all, seed 3"
