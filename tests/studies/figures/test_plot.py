"""`rayfl.plot` and `rayfl plot`: what figures show, and what is said where they cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rayfl
from rayfl.__main__ import main
from rayfl.errors import RayflError
from rayfl.runs.archive import GridPlace
from rayfl.runs.figures.style import MOST_LINES, line_style
from tests.studies.figures.recorded_runs import write_run
from tests.studies.figures.scene import with_tasks

FEDAVG = ([0.2, 0.4, 0.6], [0.4, 0.6, 0.8])
CYCLIC = [("cyclic", 2), ("federated", 4)]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of one scenario, and a run of another with two phases."""
    found = [
        write_run(tmp_path / f"a{seed}", "FedAvg", seed, {"test_accuracy": scores, "bytes": [1e6, 2e6, 3e6]})
        for seed, scores in enumerate(FEDAVG)
    ]
    columns = {"test_accuracy": [0.5, 0.7, 0.9], "bytes": [2e6, 3e6, 4e6]}
    return [*found, write_run(tmp_path / "b", "Cyclic $1", 0, columns, phases=CYCLIC)]


def test_seeds_become_a_mean_in_percent_with_a_band(runs: list[Path]) -> None:
    axes = rayfl.plot(*runs).axes[0]
    mean = 100 * np.mean(FEDAVG, axis=0)
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_xydata()), np.column_stack([[2, 4, 6], mean]))
    (band,) = axes.collections
    edges = np.asarray(band.get_paths()[0].vertices)
    deviation = 100 * np.std(FEDAVG, axis=0, ddof=1)
    np.testing.assert_allclose([edges[:, 1].min(), edges[:, 1].max()], [(mean - deviation)[0], (mean + deviation)[2]])
    assert (axes.get_xlabel(), axes.get_ylabel().replace("\N{NO-BREAK SPACE}", " ")) == ("Round", "Test accuracy (%)")
    assert axes.lines[1].get_linewidth() < axes.lines[0].get_linewidth()


def test_the_legend_names_lines_in_order_and_panels_share_their_looks(runs: list[Path]) -> None:
    figure = rayfl.plot(*runs, metrics=["test_accuracy", "bytes"], labels=["averaging", "relay"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["averaging", "relay"]
    looks = [[(line.get_color(), line.get_marker()) for line in axes.lines[:2]] for axes in figure.axes]
    assert len(looks) == 2
    assert looks[0] == looks[1]
    chosen = rayfl.plot(*runs, lines=["Cyclic $1", "FedAvg"])
    assert [text.get_text() for text in chosen.legends[0].get_texts()] == ["Cyclic $1", "FedAvg"]


def test_lines_differ_without_their_colour() -> None:
    styles = [line_style(place) for place in range(MOST_LINES)]
    assert len({(style.colour, style.marker) for style in styles}) == MOST_LINES
    assert len({(str(style.dash), style.marker) for style in styles[:9]}) == 9


def test_client_updates_that_a_scenario_does_not_tell_are_no_axis(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", "a", 0, {"test_accuracy": [0.1, 0.2, 0.3]})
    with (folder / "scenario.toml").open("a") as file:
        file.write("[participation]\nspeed = 1.0\n")
    said = r"does not tell the number of client updates \(no cohorts, or of varying size; \[participation\]; a privacy"
    with pytest.raises(rayfl.ScenarioError, match=said):
        rayfl.plot(folder, x="updates")


@pytest.mark.parametrize(
    ("x", "label", "last"), [("rounds", "Round", 6), ("bytes", "Traffic (MB)", 4), ("updates", "Client updates", 24)]
)
def test_the_x_axis_has_its_own_unit(runs: list[Path], x: Any, label: str, last: float) -> None:
    axes = rayfl.plot(runs[2], x=x).axes[0]
    assert axes.get_xlabel() == label
    assert np.asarray(axes.lines[0].get_xdata())[-1] == pytest.approx(last)


@pytest.mark.parametrize(("x", "place"), [("rounds", 2.5), ("bytes", 2), ("last_phase", 0.5)])
def test_a_line_with_two_phases_is_marked_where_they_meet(tmp_path: Path, x: Any, place: float) -> None:
    columns = {"test_accuracy": [0.1, 0.5, 0.7, 0.9], "bytes": [1e6, 2e6, 3e6, 4e6]}
    axes = rayfl.plot(write_run(tmp_path / "run", "r", 0, columns, (1, 2, 4, 6), CYCLIC), x=x).axes[0]
    assert np.asarray(axes.lines[1].get_xdata()).tolist() == [place, place]
    if x == "last_phase":
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == [-1, 0, 2, 4]
        assert axes.get_xlabel() == "Round of the last phase"
        assert -1.2 < axes.get_xlim()[0] < -1
    assert [text.get_text() for text in axes.texts] == ["cyclic → federated"]


def test_the_switch_of_two_private_phases_is_marked_over_epsilon(tmp_path: Path) -> None:
    columns = {"test_accuracy": [0.1, 0.5, 0.7, 0.9], "epsilon": [0.5, 1.0, 2.0, 4.0]}
    axes = rayfl.plot(write_run(tmp_path / "both", "r", 0, columns, (1, 2, 4, 6), CYCLIC), x="epsilon").axes[0]
    assert np.asarray(axes.lines[1].get_xdata()).tolist() == [1.0, 1.0]
    columns["epsilon"] = [None, None, 2.0, 4.0]  # type: ignore[list-item]
    axes = rayfl.plot(write_run(tmp_path / "one", "r", 0, columns, (1, 2, 4, 6), CYCLIC), x="epsilon").axes[0]
    assert len(axes.lines) == 1


def test_phases_end_where_they_end_on_average_over_seeds(tmp_path: Path) -> None:
    runs = []
    for seed, seconds in enumerate(([1.0, 2.0, 3.0, 4.0], [1.5, 4.0, 5.0, 6.0])):  # the first phase takes 2 s, and 4 s
        columns = {"test_accuracy": [0.1, 0.5, 0.7, 0.9], "seconds": seconds}
        runs.append(write_run(tmp_path / str(seed), "r", seed, columns, (1, 2, 4, 6), CYCLIC))
    axes = rayfl.plot(*runs, x="seconds").axes[0]
    assert np.asarray(axes.lines[1].get_xdata()).tolist() == [3, 3]


def test_a_phase_that_a_seed_did_not_reach_is_not_marked(tmp_path: Path) -> None:
    phases = [("cyclic", 2), ("federated", 2), ("personal", 2)]
    for seed, rounds in enumerate(([1, 2, 4, 6], [1, 2, 3])):
        columns = {"test_accuracy": [0.1 * number for number in rounds], "seconds": [1.0 * number for number in rounds]}
        folder = tmp_path / "row" / "column" / f"seed_{seed}"
        write_run(folder, GridPlace("G", "row", "column", seed), seed, columns, rounds, phases)
    figure = rayfl.plot(tmp_path, x="seconds")
    assert [text.get_text() for text in figure.axes[0].texts] == ["cyclic → federated"]
    assert "a line ends where the first of its runs ends" in figure.get_supxlabel().replace("\n", " ")


def test_a_band_never_widens_an_axis_of_percent_far_past_0_or_100(tmp_path: Path) -> None:
    for seed, scores in enumerate(([0.0, 0.1, 0.99], [0.3, 0.5, 0.8])):
        write_run(
            tmp_path / f"grid/row/column/seed_{seed}",
            GridPlace("G", "row", "column", seed),
            seed,
            {"test_accuracy": scores},
        )
    low, high = rayfl.plot(tmp_path / "grid", band="interval").axes[0].get_ylim()
    assert -10 < low < 0
    assert 100 < high < 110


def test_one_small_line_says_what_is_shown(runs: list[Path]) -> None:
    caption = rayfl.plot(*runs[:2], band="range", smooth=3, width="page").get_supxlabel().replace("\n", " ")
    assert caption.replace("\N{NO-BREAK SPACE}", " ") == (
        "Mean of 2 seeds; band: least to largest over seeds; smoothed over 3 evaluated rounds; "
        f"data: digits (generated, no real data); rayfl {rayfl.__version__}"
    )


def test_seeds_of_a_task_are_averaged_before_the_band_over_tasks(tmp_path: Path) -> None:
    scores = [[0.1, 0.2], [0.5, 0.6], [0.6, 0.8]]  # by task and seed
    figure = rayfl.plot(with_tasks(tmp_path / "grid", {"random": scores}), band="range", width="page")
    (band,) = figure.axes[0].collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [15, 70])
    assert figure.get_supxlabel().startswith(
        "Mean of 3 tasks, each averaged over 2 seeds; band: least to largest over tasks; data:"
    )


def test_the_caption_claims_no_band_where_no_line_has_one(tmp_path: Path) -> None:
    figure = rayfl.plot(with_tasks(tmp_path / "grid", {"random": [[0.1, 0.2]]}))
    assert not figure.axes[0].collections
    assert figure.get_supxlabel().startswith("One task, averaged over 2 seeds; data:")


def test_a_notebook_shows_the_figure_without_further_settings(runs: list[Path]) -> None:
    assert "</svg>" in rayfl.plot(*runs)._repr_svg_()  # type: ignore[attr-defined]  # Jupyter looks for it by name


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_same_records_give_the_same_bytes(runs: list[Path], tmp_path: Path, suffix: str, magic: bytes) -> None:
    files = [tmp_path / f"{name}.{suffix}" for name in ("one", "other")]
    for file in files:
        rayfl.plot(*runs, out=file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(magic)


def test_a_pdf_embeds_its_fonts_as_outlines_that_editors_keep_as_text(runs: list[Path], tmp_path: Path) -> None:
    rayfl.plot(*runs, out=tmp_path / "figure.pdf")
    written = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in written
    assert b"/Subtype /Type3" not in written  # matplotlib's default, which many proceedings refuse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": "test_acuracy"}, r"metric: '.*' does not report 'test_acuracy'; did you mean 'test_accuracy'\?"),
        ({"x": "seconds"}, "x: '.*' has not recorded seconds; choose another axis, such as rounds"),
        ({"x": "epsilon"}, "x: '.*' has not recorded epsilon"),
        ({"x": "round"}, r"x: there is no axis 'round'; did you mean 'rounds'"),
        ({"band": "sd"}, "band: there is no 'sd'"),
        ({"lines": ["FedAvgs"]}, r"lines: there is no line 'FedAvgs'; did you mean 'FedAvg'\?"),
        ({"labels": ["one"]}, "labels: give 2 different labels"),
        ({"out": "figure.gif"}, r"out: 'figure.gif' .* use \.png, \.svg, \.pdf"),
        ({"out": "nowhere/figure.png"}, "out: 'nowhere/figure.png' cannot be written"),
    ],
)
def test_wrong_options_give_one_line_errors(runs: list[Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises(RayflError, match=message) as caught:
        rayfl.plot(*runs, **options)
    assert "\n" not in str(caught.value)


def test_runs_with_different_results_need_a_named_metric(runs: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path / "c", "Loss", 0, {"test_loss": [3.0, 2.0, 1.0]}, headline="loss")
    with pytest.raises(RayflError, match="'test_accuracy' and 'test_loss'; name one"):
        rayfl.plot(runs[0], other)


def test_a_metric_is_not_drawn_in_two_units(tmp_path: Path) -> None:
    scores = {"test_f1": [0.1, 0.2, 0.3], "test_loss": [3.0, 2.0, 1.0]}
    one = write_run(tmp_path / "one", "One", 0, scores, headline="loss")
    other = write_run(tmp_path / "other", "Other", 0, scores, headline="f1")
    records = other / "environment.json"
    records.write_text(records.read_text().replace('"is_share": false', '"is_share": true'))
    with pytest.raises(RayflError, match=r"'test_f1' has different units among the runs \(a plain number and in %\)"):
        rayfl.plot(one, other, metrics="test_f1")


def test_the_command_writes_beside_the_run(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(runs[0])]) == 0
    assert capsys.readouterr().out == f"picture  {runs[0] / 'plot.png'}\n"
    assert (runs[0] / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_asks_for_a_file_where_there_are_several_folders(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *map(str, runs)]) == 1
    assert capsys.readouterr().err == "error: out: with several folders, say where the figure goes: --out FILE.png\n"
    assert main(["plot", str(tmp_path)]) == 1
    assert "holds neither a run nor a grid" in capsys.readouterr().err


def test_the_legend_wraps_and_stays_inside_the_picture(tmp_path: Path) -> None:
    count = 7
    folders = [write_run(tmp_path / f"{n}", f"run {n}", 0, {"test_accuracy": [0.1, 0.2, n / 10]}) for n in range(count)]
    labels = [f"method {n} with " + "a name of several words and " * 2 + "an end" for n in range(count)]
    figure = rayfl.plot(*folders, labels=labels, width="column")
    figure.draw_without_rendering()
    legend = figure.legends[0]
    box, axes = legend.get_window_extent(), figure.axes[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert axes.y1 <= box.y0 < box.y1 <= figure.bbox.height
    assert figure.axes[0].get_position().height * figure.get_figheight() > 1.0
    assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == labels


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    """A grid of two rows by relays of 0, 4 and 2 rounds, with two seeds."""
    return [
        write_run(
            tmp_path / f"{row}{rounds}{seed}",
            GridPlace("Sweep", row, f"{rounds} rounds", seed),
            seed,
            {"test_accuracy": [0.9, 0.1, rounds / 10 + seed / 100 + place / 2]},
            phases=[*([("cyclic", rounds)] if rounds else []), ("federated", 6 - rounds)],
        )
        for place, row in enumerate(("plain", "other"))
        for rounds in (0, 4, 2)
        for seed in (0, 2)
    ]


@pytest.mark.parametrize("panels", ["columns", "rows"])
def test_cells_of_a_grid_are_points_over_a_key_of_their_scenarios(sweep: list[Path], panels: Any) -> None:
    figure = rayfl.plot(*sweep, x="phases.cyclic.rounds", panels=panels)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "Cyclic rounds"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "other"]
    for place, line in enumerate(axes.lines):
        points = np.column_stack([[0, 2, 4], [1 + 50 * place, 21 + 50 * place, 41 + 50 * place]])
        np.testing.assert_allclose(np.asarray(line.get_xydata()), points)
    edges = np.asarray(axes.collections[0].get_paths()[0].vertices)
    np.testing.assert_allclose(edges[:, 1].min(), 1 - np.std([0, 2], ddof=1))
    best = rayfl.plot(*sweep, x="phases.cyclic.rounds", at="best").axes[0]
    np.testing.assert_allclose(np.asarray(best.lines[0].get_ydata()), 90)


def test_keys_that_make_no_points_are_named(sweep: list[Path]) -> None:
    for x, said in {
        "phases.cyclik.rounds": "the scenarios of these runs have no key 'phases.cyclik.rounds'; did you mean",
        "phases.cyclic.schedule": "'phases.cyclic.schedule' is no number in",
        "data.clients": "'data.clients' does not differ along rows or columns of these runs",
        "cyclic": "there is no axis 'cyclic'",
    }.items():
        with pytest.raises(RayflError, match=said):
            rayfl.plot(*sweep, x=x)
    with pytest.raises(RayflError, match="at: has no effect on learning curves"):
        rayfl.plot(*sweep, at="best")
    with pytest.raises(RayflError, match="at: no run evaluated round 3"):
        rayfl.plot(*sweep, x="phases.cyclic.rounds", at=3)
