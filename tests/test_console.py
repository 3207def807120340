"""Consoles that print to a file, and lines that are wrapped."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rayfl.console import Bold, TextTable, log_console, print_wrapped


def test_output_that_cannot_be_written_raises_nothing_and_later_lines_are_appended(tmp_path: Path) -> None:
    log_console(Path("/dev/full")).print("round 1")
    log_console(tmp_path / "removed" / "run.log").print("round 1")
    console = log_console(tmp_path / "run.log")
    console.print("round 1")
    console.print("round 2")
    assert (tmp_path / "run.log").read_text() == "round 1\nround 2\n"


def test_every_part_has_the_columns_that_tell_rows_apart() -> None:
    rows = [["FedAvg", str(seed), "81.30 ± 0.45", "reference"] for seed in (0, 1)]
    table = TextTable("Runs.", ["", "seed", "test accuracy, %", "difference"], rows, keys=("seed",))
    parts = table.fitted(30)
    assert [part.header[:2] for part in parts] == [["", "seed"], ["", "seed"]]
    assert [row[1] for part in parts for row in part.rows] == ["0", "1", "0", "1"]


def test_labels_that_are_empty_or_alone_are_no_obstacle() -> None:
    empty, alone = TextTable("", ["", "a long heading"], [["", "12345678"]]), TextTable("", [""], [["some words"]])
    assert len(empty.fitted(8)) == 1
    assert alone.fitted(8) == [alone]


@given(st.text(st.sampled_from("ab/ \N{CJK UNIFIED IDEOGRAPH-4E00}"), max_size=60), st.integers(12, 40))
def test_a_wrapped_line_loses_nothing_but_spaces_where_it_breaks(text: str, width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None, _environ={})
    print_wrapped(console, text, indent=9)
    lines = file.getvalue().removesuffix("\n").split("\n")
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert "".join("".join(lines).split()) == "".join(text.split())
    words = [word for line in lines for word in re.findall(r"[^\s/]+", line)]
    assert words == re.findall(r"[^\s/]+", text)  # no name is broken


def shown(table: TextTable, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None)
    for part in table.fitted(width):
        console.print(part.rich())
    return [line.strip() for line in file.getvalue().splitlines() if line.strip()]


WIDE = TextTable(
    "Scores.",
    ["", "test accuracy, %", "difference to FedAvg", "bytes, MB"],
    [
        ["FedAvg", Bold("81.30 ± 0.45"), "reference", "126.3"],
        ["CyclicFL", "80.10 ± 0.20", "−1.20 [−1.9, −0.5]", "189.4"],
    ],
)


def test_a_table_that_fits_stays_as_it_is() -> None:
    assert WIDE.fitted(120) == [WIDE]
    assert shown(WIDE, 120)[-1] == "CyclicFL       80.10 ± 0.20     −1.20 [−1.9, −0.5]       189.4"


def test_headings_go_into_two_lines_before_a_table_is_split() -> None:
    (one,) = WIDE.fitted(64)
    assert one.header == ["", "test\naccuracy, %", "difference to\nFedAvg", "bytes,\nMB"]
    assert one.rows == WIDE.rows
    assert isinstance(one.rows[0][1], Bold)


def test_a_table_wider_than_the_terminal_is_split_and_every_part_has_the_labels() -> None:
    lines = shown(WIDE, 48)
    assert max(map(len, lines)) <= 48
    assert [line.split()[0] for line in lines].count("CyclicFL") == 2
    assert sum("−1.20 [−1.9, −0.5]" in line for line in lines) == 1


@given(
    st.lists(st.lists(st.text("ab 1", min_size=1, max_size=12), min_size=4, max_size=4), min_size=1, max_size=3),
    st.integers(30, 70),
)
def test_numbers_are_never_broken_at_any_width(rows: list[list[str]], width: int) -> None:
    cells = [[label, *(cell.replace(" ", "0") for cell in numbers)] for label, *numbers in rows]
    table = TextTable("", ["", "one", "two words", "three more words"], cells)
    lines = shown(table, width)
    words = Counter(word for line in lines for word in line.split())
    numbers = Counter(number for _, *row in cells for number in row)
    assert all(words[number] >= count for number, count in numbers.items())
    assert max(map(len, lines)) <= width
