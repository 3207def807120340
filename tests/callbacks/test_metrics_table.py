from __future__ import annotations

from typing import Any

from rayfl.callbacks.live_table import metrics_table


def test_a_row_for_each_round_without_columns_that_are_empty() -> None:
    rows: list[dict[str, Any]] = [
        {"round": 1, "test_loss": 0.12345, "top": None},
        {"round": 2, "test_loss": None, "top": None},
    ]
    assert metrics_table("a < b", rows, emphasised="test_loss").html() == (
        "<table><caption>a &lt; b</caption><tr><th>round</th><th>test loss</th></tr>"
        "<tr><td>1</td><td><b>0.1235</b></td></tr><tr><td>2</td><td><b>–</b></td></tr></table>"
    )


def test_of_an_error_the_highest_are_the_worst() -> None:
    assert "<th>client test rmse worst 20 %</th>" in metrics_table("", [{"client_test_rmse_lowest_20": 1.0}]).html()
