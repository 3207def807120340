from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rayfl.data.dataset import Provenance
from rayfl.engine.columns import METRICS
from rayfl.engine.plan.rounds import PhaseSpan
from rayfl.runs.curves import draw_curves
from tests.runs.evaluations import ACCURACY

FILES = Provenance("files", "FEMNIST of 190 writers")
GENERATED = Provenance("generated", "handwriting of 40 writers")
STAND_IN = Provenance("generated", "Stand-in for FEMNIST (generated handwriting), not real data: no files")
ONE_PHASE = [PhaseSpan("federated", "parallel", 1, 10)]


def metrics(rounds: Sequence[int], accuracy: Sequence[float], loss: Sequence[float | None]) -> pa.Table:
    rows = [
        {"round": r, "test_accuracy": a, "test_loss": value, "train_loss": value}
        for r, a, value in zip(rounds, accuracy, loss, strict=True)
    ]
    scores = [("test_accuracy", pa.float64()), ("test_loss", pa.float64())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*METRICS, *scores]))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would have been saved, in order; to render one takes longer than all else."""
    saved: list[Figure] = []

    def remember(self: Figure, path: Path, **_: object) -> None:
        saved.append(self)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", remember)
    return saved


def test_the_picture_is_a_whole_png_and_nothing_else_is_left(tmp_path: Path) -> None:
    rows = metrics([1, 5, 10], [0.1, 0.2, 0.3], [3.0, 2.0, 1.0])
    draw_curves(rows, ACCURACY, ONE_PHASE, "title", FILES, tmp_path / "curves.png")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
    with Image.open(tmp_path / "curves.png") as image:
        assert image.format == "PNG"
        assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 10


def test_lines_hold_the_metrics_as_they_are(tmp_path: Path, figures: list[Figure]) -> None:
    draw_curves(
        metrics([1, 5, 10], [0.1, 0.4, 0.3], [3.0, 2.0, 1.0]), ACCURACY, ONE_PHASE, "title", FILES, tmp_path / "c.png"
    )
    upper, lower = figures[0].axes
    assert np.array_equal(upper.lines[0].get_xydata(), [[1, 0.1], [5, 0.4], [10, 0.3]])
    assert np.array_equal(lower.lines[1].get_ydata(), [3.0, 2.0, 1.0])
    assert upper.lines[0].get_label() == "test accuracy (best 40.00 % in round 5)"


@pytest.mark.parametrize(
    ("provenance", "text"),
    [
        (FILES, "Data: FEMNIST of 190 writers"),
        (GENERATED, "Generated data: handwriting of 40 writers"),
        (STAND_IN, "Stand-in for FEMNIST (generated handwriting), not real data: no files"),
    ],
)
def test_the_caption_says_what_the_data_was(
    provenance: Provenance, text: str, tmp_path: Path, figures: list[Figure]
) -> None:
    draw_curves(metrics([1], [0.1], [3.0]), ACCURACY, ONE_PHASE, "title", provenance, tmp_path / "c.png")
    assert figures[0].get_supxlabel() == text


def test_a_long_description_of_generated_data_is_one_small_line_that_fits(
    tmp_path: Path, figures: list[Figure]
) -> None:
    long = Provenance("generated", "handwriting of 40 writers with strokes of their own, " * 20)
    draw_curves(metrics([1], [0.1], [3.0]), ACCURACY, ONE_PHASE, "title", long, tmp_path / "c.png")
    text = figures[0].get_supxlabel()
    assert text.startswith("Generated data: handwriting")
    assert "\n" not in text
    figures[0].draw_without_rendering()
    (caption,) = [artist for artist in figures[0].texts if artist.get_text() == text]
    assert float(caption.get_fontsize()) < 8
    extent = caption.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figures[0].bbox.x1


@pytest.mark.parametrize(
    ("rounds", "accuracy", "loss"),
    [
        ([], [], []),
        ([1], [0.1], [3.0]),
        ([1, 2, 3], [0.1, 0.2, 0.1], [3.0, None, None]),
        ([1, 2], [0.0, 0.0], [None, None]),
    ],
    ids=["none", "one", "some are lost", "all are lost"],
)
def test_few_rounds_and_losses_that_are_not_finite_are_drawn(
    rounds: list[int], accuracy: list[float], loss: list[float | None], tmp_path: Path, figures: list[Figure]
) -> None:
    draw_curves(metrics(rounds, accuracy, loss), ACCURACY, ONE_PHASE, "title", FILES, tmp_path / "c.png")
    lost = loss.count(None)
    label = f"test loss (not finite in {lost} of {len(loss)} evaluated rounds)" if lost else "test loss"
    assert figures[0].axes[1].lines[1].get_label() == label


@pytest.mark.parametrize("lengths", [(1, 1, 998), (998, 1, 1)], ids=["narrow first", "narrow last"])
def test_names_of_phases_neither_touch_nor_leave_the_picture(
    lengths: tuple[int, ...], tmp_path: Path, figures: list[Figure]
) -> None:
    ends = np.cumsum(lengths).tolist()
    phases = [
        PhaseSpan(f"phase number {i}", "relay", end - length + 1, end)
        for i, (length, end) in enumerate(zip(lengths, ends, strict=True))
    ]
    draw_curves(metrics([1], [0.1], [3.0]), ACCURACY, phases, "title " * 30, FILES, tmp_path / "c.png")
    figures[0].draw_without_rendering()
    names = [text for text in figures[0].axes[0].texts if text.get_text().startswith("phase number")]
    assert len(names) == len(lengths)
    boxes = [text.get_window_extent() for text in names]
    for index, box in enumerate(boxes):
        assert figures[0].bbox.x0 <= box.x0
        assert box.x1 <= figures[0].bbox.x1
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def test_with_a_virtual_clock_scores_are_also_drawn_over_what_they_cost(tmp_path: Path, figures: list[Figure]) -> None:
    rows = metrics([1, 5, 10], [0.1, 0.4, 0.3], [3.0, 2.0, 1.0])
    rows = rows.set_column(rows.schema.get_field_index("bytes"), "bytes", pa.array([10**6, 3 * 10**6, 7 * 10**6]))
    rows = rows.append_column("simulated_seconds", pa.array([60.0, 150.0, 300.0]))
    draw_curves(rows, ACCURACY, ONE_PHASE, "title", FILES, tmp_path / "c.png")
    _, _, time, traffic = figures[0].axes
    assert np.array_equal(time.lines[0].get_xydata(), [[1, 0.1], [2.5, 0.4], [5, 0.3]])
    assert np.array_equal(traffic.lines[0].get_xydata(), [[1, 0.1], [3, 0.4], [7, 0.3]])
    assert (time.get_xlabel(), traffic.get_xlabel()) == ("simulated time (min)", "traffic (MB)")
    still = rows.append_column("energy_joules", pa.array([0.0, 0.0, 0.0]))
    draw_curves(still, ACCURACY, ONE_PHASE, "title", FILES, tmp_path / "c.png")
    assert len(figures[1].axes) == 4
