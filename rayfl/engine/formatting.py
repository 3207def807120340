"""Numbers and column names as people read them."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from rayfl.config.execution import NUMBER_OF_CLIENTS
from rayfl.engine.plan.headline import Headline


def duration(seconds: float) -> str:
    """Returns `0.4 s`, `12 s`, `3 min 20 s` or `2 h 5 min`; `–` if it is not finite."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def words_of(column: str) -> str:
    """Returns the name of a column of the records as people read it.

    `client_test_rmse_lowest_20` is `client test rmse worst 20 %`: for an error, the worst clients have the highest.
    """
    words = re.sub(r"_lowest_(\d+)$", r" worst \1 %", column)
    return re.sub(rf"_{NUMBER_OF_CLIENTS}$", ", number of clients", words).replace("_", " ")


def percent(share: float) -> str:
    """Returns `45.20 %` for 0.452."""
    return f"{100 * share:.2f} %"


class Unit(NamedTuple):
    """How values of the records are shown: times `factor`, followed by `symbol`."""

    factor: float
    symbol: str


def unit_of(column: str, headline: Headline) -> Unit:
    """Returns the unit in which a column of the records is shown.

    Columns of accuracies, and of a headline metric that is a share, are in percent, and variances of them
    (`client_test_accuracy_variance`) in percent squared. All others are shown unchanged.
    """
    if column.endswith(f"_{NUMBER_OF_CLIENTS}"):
        return Unit(1, "")
    shares = ["accuracy", *([headline.metric] if headline.is_share else [])]
    if not any(re.search(rf"(^|_){re.escape(metric)}(_|$)", column) for metric in shares):
        return Unit(1, "")
    return Unit(1e4, "%²") if "_variance" in column else Unit(100, "%")
