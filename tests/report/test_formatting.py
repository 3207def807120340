import pytest

from rayfl.report.formatting import duration, words_of


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


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("client_test_rmse_lowest_20", "client test rmse worst 20 %"),
        ("client_test_accuracy_lowest_10", "client test accuracy worst 10 %"),
        ("test_macro_f1", "test macro f1"),
        ("test_lowest_score", "test lowest score"),
    ],
)
def test_columns_are_called_what_they_mean(column: str, words: str) -> None:
    assert words_of(column) == words
