from __future__ import annotations

import pytest

from rayfl.errors import ClientError, DataError, ResourceError, ScenarioError
from rayfl.interruption import HungUp, Terminated, TimeOver
from rayfl.wording import LONGEST_LINE as LONGEST
from rayfl.wording import duration, one_line

HEADER = "Traceback (most recent call last):\n"
TRACEBACK = """its code raised
Traceback (most recent call last):
  File "user.py", line 3, in train
    raise ValueError("two\\nlines")
ValueError: two
lines
"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ClientError(3, 0, "p", 2, TRACEBACK),
            "client 3 on worker 0, phase 'p', round 2: its code raised: ValueError: two lines",
        ),
        (
            DataError(f"'mine:data' raised KeyError: 'x'\n{HEADER}  File...\nKeyError: 'x'"),
            "'mine:data' raised KeyError: 'x'",
        ),
        (ScenarioError("scenario 'x':\nmodel.name: unknown"), "scenario 'x': model.name: unknown"),
        (ResourceError("host 0 died"), "host 0 died"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), "Ctrl-C"),
        (Terminated(), "SIGTERM"),
        (HungUp(), "SIGHUP"),
        (TimeOver(), "its minutes were over"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_reason_names_the_place_and_the_exception(error: BaseException, expected: str) -> None:
    assert one_line(error) == expected


def test_a_reason_stays_a_line_that_can_be_read() -> None:
    assert len(one_line(ValueError("x" * 10_000))) == LONGEST


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (360000, "100 h 0 min"),
    ],
)
def test_duration_reads_as_people_say_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
