from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from rich.console import Console

from rayfl.engine.events import Event, RoundDone
from rayfl.engine.totals import Traffic
from rayfl.runs.figures.client_scores import ClientScores
from rayfl.runs.summary import EndSummary
from tests.runs.evaluations import ACCURACY, HEADLINES, evaluated

FOLDER = Path("runs") / ("x" * 100)


def shown(*events: Event) -> list[str]:
    """The lines of a log that is 80 characters wide, with repeated spaces squeezed to one."""
    summary = EndSummary(HEADLINES)
    for event in events:
        summary.add(event)
    file = io.StringIO()
    summary.show(Console(file=file, width=80), str(FOLDER))
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def test_a_column_per_phase_says_what_it_reached_and_what_it_alone_cost() -> None:
    lines = shown(
        RoundDone("cyclic", 5, 5, 2.0, 10, 100, Traffic(50, down_bytes=2_000_000, up_bytes=3_000_000), 10.0),
        evaluated("cyclic", 4, 3.0, 0.25, 100),
        evaluated("cyclic", 5, 3.25, 0.125, 100),
        RoundDone("federated", 7, 2, 2.0, 10, 100, Traffic(1090, down_bytes=5_000_000, up_bytes=2_000_000_000), 210.0),
        evaluated("federated", 6, 1.5, 0.5, 100),
        evaluated("federated", 7, 1.25, 0.5, 100),
    )
    assert [line for line in lines if line and "─" not in line] == [
        "cyclic federated",
        "rounds 5 2",
        "test accuracy 12.50 % 50.00 %",
        "best test accuracy 25.00 % 50.00 %",
        "reached in round 4 6",
        "test loss 3.25 1.25",
        "model transfers 50 1,040",
        "traffic 5.0 MB 2.0 GB",
        "time 10 s 3 min 20 s",
        f"records: {FOLDER}",
    ]


def test_reported_scalars_are_named_in_words() -> None:
    done = RoundDone("cyclic", 5, 5, 2.0, 10, 100, Traffic(), 10.0, {"left_out": 3.0})
    assert "left out 3" in shown(done, evaluated("cyclic", 5, 3.25, 0.125, 100))


def test_an_undefined_score_is_called_so_and_is_never_the_best() -> None:
    lines = shown(
        RoundDone("drawn", 3, 3, 2.0, 10, 100, Traffic(), 1.0),
        RoundDone("whole", 5, 2, 2.0, 10, 100, Traffic(), 1.0),
        evaluated("drawn", 1, 1.0, None, 100),
        evaluated("drawn", 2, 1.0, 0.25, 100),
        evaluated("drawn", 3, 1.0, None, 100),
        evaluated("whole", 5, 1.0, None, 100, test_accuracy_mean=None, test_accuracy_clients=1200.0),
    )
    assert "test accuracy undefined undefined" in lines
    assert "best test accuracy 25.00 % –" in lines
    assert "reached in round 2 –" in lines
    assert "test accuracy mean – undefined" in lines
    assert "test accuracy, number of clients – 1,200" in lines


def test_evaluations_out_of_order_do_not_change_which_is_last() -> None:
    lines = shown(
        RoundDone("federated", 2, 2, 2.0, 10, 100, Traffic(), 1.0),
        evaluated("federated", 2, 1.0, 0.5, 100),
        evaluated("federated", 1, 2.0, 0.25, 100),
    )
    assert "test accuracy 50.00 %" in lines
    assert "test loss 1" in lines


def test_statistics_of_the_worst_clients_are_called_so_whatever_the_direction() -> None:
    lines = shown(
        RoundDone("federated", 1, 1, 2.0, 10, 100, Traffic(), 1.0),
        evaluated("federated", 1, 1.0, 0.5, 100, client_test_rmse_lowest_20=2.5),
    )
    assert "client test rmse worst 20 % 2.5" in lines


def test_a_phase_without_an_evaluation_shows_dashes() -> None:
    lines = shown(RoundDone("[b]", 1, 1, 2.0, 10, 100, Traffic(3, up_bytes=1), 1.0))
    assert {"[b]", "test accuracy –", "best test accuracy –", "traffic 1 byte"} <= set(lines)


def test_reported_scalars_are_rows_and_a_phase_without_one_has_a_dash() -> None:
    lines = shown(
        RoundDone("cyclic", 1, 1, 2.0, 10, 100, Traffic(), 1.0),
        RoundDone("federated", 2, 1, 2.0, 10, 100, Traffic(), 2.0, scalars={"drift": 3.0}),
        RoundDone("federated", 3, 2, 2.0, 10, 100, Traffic(), 3.0, scalars={"drift": 0.123456}),
        evaluated("federated", 3, 1.0, 0.5, 100, personalized_accuracy=0.75, test_macro_f1=0.5),
    )
    assert {"drift – 0.1235", "test macro f1 – 0.5", "personalized accuracy – 75.00 %"} <= set(lines)


def test_single_clients_have_a_line_and_a_table_of_the_best_and_worst_of_many() -> None:
    def printed(number: int, list_clients: bool) -> list[str]:
        values = np.arange(number) / 100
        of = ClientScores(3, "test", np.arange(number), None, np.full(number, 7), {"accuracy": values}, ACCURACY)
        summary, file = EndSummary(HEADLINES), io.StringIO()
        summary.add(RoundDone("p", 3, 3, 2.0, 10, 100, Traffic(), 1.0))
        summary.show(Console(file=file, width=80), "runs/x", "", [of], list_clients)
        return [" ".join(line.split()) for line in file.getvalue().splitlines()]

    line = "clients: test accuracy worst 0.00 %, median 0.50 %, best 1.00 %, of 2 clients"
    assert line in printed(2, list_clients=False)
    assert not [text for text in printed(2, list_clients=False) if text.startswith("client ")]
    assert [text for text in printed(2, list_clients=True) if text.startswith("client ")] == [
        "client 1 7 1.000",
        "client 0 7 0.000",
    ]
    listed = [text.split()[1] for text in printed(21, list_clients=True) if text.startswith("client ")]
    assert listed == ["20", "19", "18", "17", "16", "4", "3", "2", "1", "0"]


def test_a_summary_goes_on_from_undefined_scores() -> None:
    summary = EndSummary(HEADLINES)
    summary.add(RoundDone("p", 2, 2, 2.0, 10, 100, Traffic(), 1.0))
    summary.add(evaluated("p", 1, 1.0, 0.5, 100))
    summary.add(evaluated("p", 2, float("inf"), None, 100))
    again = EndSummary(HEADLINES)
    again.restore(json.loads(json.dumps(summary.state(), allow_nan=False)))
    assert again.state() == summary.state()
    assert summary.state()["p"]["last"]["scores"] == {"test_loss": "inf", "test_accuracy": None}
