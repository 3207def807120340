from __future__ import annotations

import pytest

from rayfl.errors import ClientError, DataError, ResourceError, ScenarioError
from rayfl.interruption import HungUp, Terminated
from rayfl.wording import LONGEST_LINE as LONGEST
from rayfl.wording import one_line

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
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_reason_names_the_place_and_the_exception(error: BaseException, expected: str) -> None:
    assert one_line(error) == expected


def test_a_reason_stays_a_line_that_can_be_read() -> None:
    assert len(one_line(ValueError("x" * 10_000))) == LONGEST
