"""No text of a figure touches another or leaves the picture, for many runs with long names too."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import rayfl
from rayfl.runs.archive import GridPlace, RunArchive
from rayfl.runs.figures.curves import curves_of
from rayfl.runs.figures.recorded_run import read_so_far
from rayfl.runs.figures.style import Width, drawing
from tests.studies.figures.recorded_runs import write_run

ROUNDS = (1, 3, 500, 998, 999, 1000)
NARROW_FIRST = [("warming up", 1), ("cyclic pre-training", 1), ("federated", 998)]
NARROW_LAST = [("federated", 998), ("personalisation of all layers", 1), ("the very last phase of this run", 1)]
LONG = "a method with a name of several words, another option, and yet another one that goes on"


def overlapping(figure: Figure) -> list[str]:
    """What touches another text, lies on a curve's axes, or leaves the picture; one sentence each."""
    figure.draw_without_rendering()
    boxes = {f"{place} '{text.get_text()[:40]}'": _shrunk(text) for place, text in enumerate(_texts(figure))}
    found = [f"{one} touches {other}" for one, other in combinations(boxes, 2) if _overlap(boxes[one], boxes[other])]
    for name, box in boxes.items():
        if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1:
            found.append(f"{name} leaves the picture")
        found += [f"{name} lies in a panel" for axes in figure.axes if _overlap(box, axes.get_window_extent())]
    return found


def _texts(figure: Figure) -> list[Text]:
    """All texts that are drawn."""
    texts = [*figure.texts]
    for legend in figure.legends:
        texts += [legend.get_title(), *legend.get_texts()]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def _shrunk(text: Text) -> Bbox:
    """The box of a text without half a pixel on each side, by which neighbours may touch."""
    box = text.get_window_extent()
    return Bbox.from_extents(box.x0 + 0.5, box.y0 + 0.5, box.x1 - 0.5, box.y1 - 0.5)


def _overlap(one: Bbox, other: Bbox) -> bool:
    return bool(one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1)


@pytest.mark.parametrize("phases", [NARROW_FIRST, NARROW_LAST], ids=["narrow first", "narrow last"])
@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_curves_of_runs(count: int, width: Width, phases: list[tuple[str, int]], tmp_path: Path) -> None:
    scores = [0.1, 0.2, 0.5, 0.7, 0.9, 1.0]
    columns = {"test_accuracy": scores, "test_loss": [12_345.0, *scores[1:]]}
    folders = [write_run(tmp_path / f"{n}", f"{n} {LONG}", 0, columns, ROUNDS, phases) for n in range(count)]
    figure = rayfl.plot(*folders, metrics=list(columns), width=width, labels=[f"{n} {LONG}" for n in range(count)])
    assert not overlapping(figure)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_panels_of_a_grid_with_long_names(columns: int, tmp_path: Path) -> None:
    for row in range(4):
        for column in range(columns):
            place = GridPlace("G", f"row {row}", f"column {column}: {LONG}", 0)
            scores = {"test_accuracy": [0.1, 0.2, 0.5, 0.7, 0.9, 1.0]}
            write_run(tmp_path / f"{row}/{column}/seed_0", place, 0, scores, ROUNDS, NARROW_LAST)
    assert not overlapping(rayfl.plot(tmp_path))


@pytest.mark.parametrize("phases", [NARROW_FIRST, NARROW_LAST], ids=["narrow first", "narrow last"])
@pytest.mark.parametrize("metrics", [1, 2, 5])
def test_curves_of_one_run_with_a_virtual_clock(metrics: int, phases: list[tuple[str, int]], tmp_path: Path) -> None:
    scores = [0.1, 0.2, 0.5, 0.7, 0.9, 1.0]
    columns = {f"test_metric_{n}_of_a_long_name": scores for n in range(metrics - 1)}
    costs = {"simulated_seconds": [10.0, 2e4, 3e5, 4e5, 5e5, 6e5], "bytes": [1e9, 2e9, 3e9, 4e9, 5e12, 6e12]}
    columns = {"test_accuracy": scores, "test_loss": scores, **columns, "train_loss": scores, **costs}
    run = read_so_far(RunArchive(write_run(tmp_path / "run", f"$x_{{$ {LONG} {LONG}", 0, columns, ROUNDS, phases)))
    with drawing():
        assert not overlapping(curves_of(run, run.row))
