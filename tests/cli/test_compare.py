"""`rayfl compare`: what it prints, and its errors of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rayfl
from rayfl.__main__ import main
from rayfl.errors import ScenarioError
from tests.studies.figures.scene import a_run


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two scenarios with two seeds each, and one with a seed of its own."""
    found = [("plain", 0, [0.1, 0.5]), ("plain", 1, [0.2, 0.6]), ("fast", 0, [0.5, 0.7]), ("fast", 1, [0.4, 0.8])]
    return [str(a_run(tmp_path / f"{title}_{seed}", title, seed, values)) for title, seed, values in found]


def test_it_prints_a_table_on_one_line_per_row(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--target", "0.6", "--labels", "FedAvg", "Cyclic"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and line.strip()]
    assert " ".join(lines[1]) == "FedAvg 55.00 ± 7.07 reference 1 of 2 runs 10"
    assert " ".join(lines[2]) == "Cyclic 75.00 ± 7.07 +20.00 [+20.00, +20.00] 2 of 2 runs 10"


def test_markdown_and_latex_are_printed_as_they_are(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "--format", "markdown", "--at", "5", "--runs"]) == 0
    printed = capsys.readouterr().out
    assert "| fast | **45.00 ± 7.07** |" in printed
    assert "| fast | 1 | 80.00 | 10 | 60.00 | 80.00 |" in printed
    assert main(["compare", *runs, "--format", "latex", "--reference", "fast"]) == 0
    assert r"plain & 55.00 $\pm$ 7.07 & $-$20.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reference", "palin"], "reference 'palin': no row has this label; did you mean 'plain'?"),
        (["--metric", "test_acuracy"], "metric 'test_acuracy': no run has recorded it; did you mean 'test_accuracy'?"),
        (["--at", "7"], "at: no run evaluated round 7; the nearest evaluated round is 5"),
        (["--target", "60"], "target: test_accuracy is a share between 0 and 1 (got 60); for 60 %, give 0.6"),
        (["--smooth", "4"], "smooth: must be an odd number of evaluated rounds, at least 1 (got 4)"),
        (["--labels", "one"], "labels: give 2 different labels to replace 'plain', 'fast' (got 1)"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    runs: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, *arguments]) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("command", ["compare", "plot", "report"])
def test_uris_and_files_are_told_from_folders_that_do_not_exist(
    command: str, runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = f"{runs[0]}/metrics.jsonl"
    uri = f"file://{runs[0]}"
    for source, said in (
        (uri, f"RUN: '{uri}' is a URI, and rayfl reads records from the disk of this machine: copy its folder there"),
        (metrics, f"'{metrics}' is not a folder; name a folder below runs/"),
        (f"{runs[0]}0", f"'{runs[0]}0' does not exist; name a folder below runs/"),
    ):
        assert main([command, source]) == 1
        assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"smooth": 3.0}, "smooth: must be an odd number of evaluated rounds, at least 1 (got 3.0)"),
        ({"at": True}, "at: must be last, best, mean_last_5 or the number of a round (got 'True')"),
        ({"at": 2.0}, "at: must be last, best, mean_last_5 or the number of a round (got '2.0')"),
        ({"labels": "xy"}, "labels: give 2 different labels to replace 'plain', 'fast' (got 1)"),
    ],
)
def test_wrong_types_are_told_in_python(runs: list[str], options: Any, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        rayfl.compare(*runs, **options)
    assert str(refused.value) == said


def test_a_list_of_sources_is_told(runs: list[str]) -> None:
    sources: Any = runs
    for function in (rayfl.compare, rayfl.plot):
        with pytest.raises(ScenarioError, match=r"give each folder or result as an argument of its own \(got \['/"):
            function(sources)


def test_a_mean_says_of_how_many_rounds(runs: list[str], tmp_path: Path) -> None:
    assert "mean of the last 2 evaluated rounds;" in rayfl.compare(*runs, at="mean_last_5").text_tables[0].caption
    longer = a_run(tmp_path / "longer", "longer", 0, [0.1] * 7)
    caption = rayfl.compare(longer, *runs, at="mean_last_5").text_tables[0].caption
    assert "mean of the last 2 to 5 evaluated rounds;" in caption
    assert "mean of the last 5 evaluated rounds;" in rayfl.compare(longer, at="mean_last_5").text_tables[0].caption


def test_a_reference_that_pairs_with_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [str(a_run(tmp_path / title, title, seed)) for seed, title in enumerate("ab")]
    assert main(["compare", *found, "--reference", "a"]) == 1
    assert capsys.readouterr().err == (
        "error: reference 'a': no other run has the same seed as one of its runs (seed 0 against seed 1), so nothing "
        "can be paired; leave the reference out, or run the same seeds\n"
    )
    assert main(["compare", found[0], "--reference", "a"]) == 1
    assert "there is nothing else to compare; name more runs" in capsys.readouterr().err


def test_a_metric_without_values_and_a_target_without_a_direction_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns: dict[str, list[float | None]] = {
        "test_accuracy": [0.5],
        "personalized_accuracy": [None],
        "test_unheard_of": [1.0],
    }
    run = str(a_run(tmp_path / "a", "a", 0, columns))
    assert main(["compare", run, "--metric", "personalized_accuracy"]) == 1
    assert "metric 'personalized_accuracy': no run has a finite value of it" in capsys.readouterr().err
    assert main(["compare", run, "--metric", "test_unheard_of", "--target", "1"]) == 1
    assert (
        "target: rayfl does not know whether higher values of 'test_unheard_of' are better" in capsys.readouterr().err
    )


def test_a_round_is_a_number_or_one_of_three_words(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", *runs, "--at", "first"])
    assert caught.value.code == 2
    assert "must be last, best, mean_last_5 or a round (got 'first')" in capsys.readouterr().err
