import pytest

from rayfl.report.formatting import duration


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
