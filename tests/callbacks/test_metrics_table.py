from __future__ import annotations

from typing import Any

from rayfl.callbacks.live_table import metrics_table
from rayfl.engine.plan.headline import Headline

ACCURACY = Headline(shares=("accuracy", "macro_f1"))


def test_a_row_for_each_round_without_columns_that_are_empty() -> None:
    rows: list[dict[str, Any]] = [
        {"round": 1, "test_accuracy": 0.12345, "top": None},
        {"round": 2, "test_accuracy": None, "top": None},
    ]
    table = metrics_table("a < b", rows, ACCURACY)
    assert (table.header, table.rows) == (["round", "test accuracy"], [["1", "12.35 %"], ["2", "–"]])
    left, right = (f'style="padding:0 .6em;text-align:{side}"' for side in ("left", "right;white-space:nowrap"))
    assert left not in table.html()  # numbers are on the right
    assert table.html().startswith(f"<table><caption>a &lt; b</caption><tr><th {right}>round</th>")
    assert f"<td {right}><b>12.35 %</b></td>" in table.html()


def test_numbers_have_thousands_and_units() -> None:
    row = {"round": 1000, "test_macro_f1": 0.7026, "test_loss": 1.23456, "seconds": 75.2, "bytes": 157_800_000}
    (cells,) = metrics_table("", [row], ACCURACY).rows
    assert cells == ["1,000", "70.26 %", "1.235", "1 min 15 s", "157.8 MB"]


def test_of_an_error_the_highest_are_the_worst() -> None:
    assert metrics_table("", [{"client_test_rmse_lowest_20": 1.0}]).header == ["client test rmse worst 20 %"]
