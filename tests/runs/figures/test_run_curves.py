"""The learning curves of one run, as curves.png and the report show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.rounds import phase_spans
from rayfl.errors import DataError
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.figures.curves import curves_of
from rayfl.runs.figures.recorded_run import DataNote, from_rows, read_so_far
from rayfl.studies.figures.page.run_page import _all_scores
from tests.studies.figures.recorded_runs import write_run

TWO_PHASES = [("cyclic", 2), ("federated", 4)]
LEARNS = {"test_loss": [3.0, 2.0, 1.0], "test_accuracy": [0.1, 0.4, 0.3], "train_loss": [2.5, 1.5, 0.5]}


def drawn(folder: Path, columns: Mapping[str, Sequence[float | None]], title: str = "title") -> Figure:
    """The curves of a run with these columns."""
    run = read_so_far(RunArchive(write_run(folder / "run", title, 0, columns, phases=TWO_PHASES)))
    return curves_of(run, run.row)


def points(line: Line2D) -> tuple[list[float], list[float]]:
    x, y = np.asarray(line.get_xydata()).T.tolist()
    return x, y


def labels(figure: Figure) -> list[tuple[str, str]]:
    return [(axes.get_xlabel(), axes.get_ylabel().replace("\N{NO-BREAK SPACE}", " ")) for axes in figure.axes]


def test_the_picture_is_a_whole_png_and_nothing_else_is_left(
    tmp_path: Path, draws_curves: Callable[[Path], None]
) -> None:
    folder = write_run(tmp_path / "run", "title", 0, LEARNS)
    before = set(folder.iterdir())
    draws_curves(folder)
    assert set(folder.iterdir()) - before == {folder / "curves.png"}
    with Image.open(folder / "curves.png") as image:
        assert image.format == "PNG"
        assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 10


def test_every_metric_has_a_panel_and_every_set_of_samples_a_line(tmp_path: Path) -> None:
    columns: dict[str, Sequence[float]] = {
        "test_loss": [3.0, 2.0, 1.0],
        "test_f1": [0.2, 0.3, 0.4],
        "test_accuracy": [0.1, 0.4, 0.3],
        "test_accuracy_variance": [0.1, 0.1, 0.1],  # over clients: no score of the model
        "test_accuracy_clients": [4, 4, 4],
        "client_test_loss": [3.1, 2.1, 1.1],
        "client_test_accuracy": [0.2, 0.5, 0.4],
        "train_loss": [2.5, 1.5, 0.5],
        "bytes": [1, 2, 3],
    }
    figure = drawn(tmp_path, columns)
    assert labels(figure) == [("Round", "Accuracy (%)"), ("Round", "Loss"), ("Round", "F1")]
    accuracy, loss, _ = figure.axes
    assert points(accuracy.lines[0]) == ([2, 4, 6], [10, 40, 30])
    assert [points(line)[1] for line in loss.lines[:3]] == [[3, 2, 1], [3.1, 2.1, 1.1], [2.5, 1.5, 0.5]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["test", "client test", "training"]
    assert figure.legends[0].get_title().get_text() == "title"


def test_scores_that_only_a_later_phase_has_are_drawn_and_only_it_has_the_best(tmp_path: Path) -> None:
    shared = {"round_in_phase": 1, "test_loss": 0.1, "train_loss": -0.5, "seconds": 1.0}
    first, last = ({"test_spread": 0.3}, {"test_accuracy": 0.2, "test_loss": 4.0, "train_loss": 5.0})
    rows = [{"phase": "cyclic", "round": 1, **first, **shared}]
    rows += [{"phase": "federated", "round": number, "test_f1": 0.2, **shared, **last} for number in (2, 3)]
    ordered = [{key: row[key] for key in sorted(row, key=lambda key: key in ("train_loss", "seconds"))} for row in rows]
    spans = phase_spans([("cyclic", "parallel", 1), ("federated", "parallel", 2)])
    headline = Headline(phases=("federated",))
    run = from_rows("here", GridPlace("", "t", "", 0), ordered, headline, spans, DataNote("digits", "generated"))
    assert sorted(run.scores) == ["test_accuracy", "test_f1", "test_loss", "test_spread"]
    best = {row[0]: row[2:] for row in _all_scores(run).rows}
    assert best["test loss"] == ["4", "round 2"]
    assert best["training loss"] == ["5", "round 2"]
    assert best["test spread"] == ["0.3", "round 1"]


def test_a_test_set_of_the_data_is_a_line_and_a_slash_alone_makes_no_class(tmp_path: Path) -> None:
    columns = {f"{of}_{metric}": [0.1, 0.2, 0.3] for of in ("test", "test_clean") for metric in ("loss", "accuracy")}
    columns |= {"test_recall": [0.1, 0.2, 0.3], "test_recall/3": [0.3, 0.4, 0.5], "test_grad/norm": [1.0, 2.0, 3.0]}
    figure = drawn(tmp_path, columns)
    panels = [label for _, label in labels(figure)]
    assert panels == ["Accuracy (%)", "Loss", "Recall", "Grad/norm"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["test", "test clean"]


def test_the_switch_of_phases_is_marked_in_every_panel(tmp_path: Path) -> None:
    for axes in drawn(tmp_path, LEARNS).axes:
        assert [text.get_text() for text in axes.texts] == ["cyclic → federated"]
        assert [2.5, 2.5] in [points(line)[0] for line in axes.lines]


def test_axes_fit_the_data_with_a_margin(tmp_path: Path) -> None:
    columns = {"test_accuracy": [0.791, 0.793, 0.792]}
    (axes,) = drawn(tmp_path, columns).axes
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert 79 < low < 79.1 < 79.3 < high < 79.4
    assert 1.5 < left < 2 < 6 < right < 6.5


def test_the_caption_names_the_best_round_and_the_data(tmp_path: Path) -> None:
    caption = drawn(tmp_path, LEARNS).get_supxlabel()
    assert caption.startswith("Best test accuracy 40.00 % in round 4; data: digits (generated, no real data); rayfl")


@pytest.mark.parametrize(
    ("loss", "text"),
    [([3.0, 2.0, None], "no finite test loss in 1 of 3 evaluated rounds"), ([None] * 3, "; data: digits")],
    ids=["some are lost", "the task has none"],
)
def test_losses_that_are_not_finite_are_counted_unless_there_are_none(
    loss: list[float | None], text: str, tmp_path: Path
) -> None:
    figure = drawn(tmp_path, {"test_loss": loss, "test_accuracy": [0.1, 0.2, 0.3]})
    assert text in figure.get_supxlabel()
    assert len(figure.axes) == (1 if loss[0] is None else 2)


def test_a_run_without_any_finite_value_has_no_curves(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to draw"):
        drawn(tmp_path, {"test_accuracy": [None, None, None]})


def test_with_a_virtual_clock_scores_are_also_drawn_over_what_they_cost(tmp_path: Path) -> None:
    clock = {"train_loss": [1.0] * 3, "bytes": [1e6, 3e6, 7e6], "simulated_seconds": [60.0, 150.0, 300.0]}
    figure = drawn(tmp_path, {"test_accuracy": [0.1, 0.4, 0.3], **clock, "energy_joules": [0.0] * 3})
    wanted = ["Round", "Round", "Simulated time (min)", "Traffic (MB)"]  # no device has used energy
    assert [axes.get_xlabel() for axes in figure.axes] == wanted
    _, _, time, traffic = figure.axes
    assert points(time.lines[0]) == ([1, 2.5, 5], [10, 40, 30])
    assert points(traffic.lines[0]) == ([1, 3, 7], [10, 40, 30])
