"""`rayfl.compare` on runs written by hand: means, paired differences, targets, the best, and the notes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import rayfl
from rayfl.console import Bold
from rayfl.runs.archive import GridPlace
from tests.studies.figures.recorded_runs import write_run
from tests.studies.figures.scene import a_run, with_tasks

HEADLINE_LOSS = {"metric": "loss", "higher_is_better": False, "is_share": False, "on": "test", "phases": []}


def row(comparison: rayfl.Comparison, label: str, metric: str = "test_accuracy") -> dict[str, Any]:
    (found,) = [row for row in comparison.table.to_pylist() if (row["label"], row["metric"]) == (label, metric)]
    return dict(found)


def cells(comparison: rayfl.Comparison, label: str, place: int = 0) -> dict[str, str]:
    """A row of a table as texts, by header."""
    table = comparison.text_tables[place]
    (found,) = [entries for entries in table.rows if entries[0] == label]
    return dict(zip(table.header, found, strict=True))


def bold(comparison: rayfl.Comparison, place: int = 0) -> set[tuple[str, str]]:
    """(label, header) of what is in bold."""
    table = comparison.text_tables[place]
    return {
        (entries[0], header)
        for entries in table.rows
        for header, entry in zip(table.header, entries, strict=True)
        if isinstance(entry, Bold)
    }


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Runs of two scenarios with three seeds; the third seed of one of them differs."""
    plain, fast = [0.50, 0.53, 0.58], [0.60, 0.61, 0.67]
    return [
        *(a_run(tmp_path / f"plain_{seed}", "plain", seed, [0.1, plain[seed]]) for seed in range(3)),
        *(a_run(tmp_path / f"fast_{seed}", "fast", seed, [0.2, fast[place]]) for place, seed in enumerate((0, 1, 7))),
    ]


def test_means_and_deviations_are_over_the_seeds(two: list[Path]) -> None:
    comparison = rayfl.compare(*two)
    assert row(comparison, "plain")["mean"] == pytest.approx(np.mean([0.50, 0.53, 0.58]))
    assert row(comparison, "plain")["deviation"] == pytest.approx(np.std([0.50, 0.53, 0.58], ddof=1))
    assert cells(comparison, "plain")["test accuracy, %"] == "53.67 ± 4.04"
    assert "sample standard deviation over 3 seeds" in comparison.text_tables[0].caption


def test_differences_are_paired_by_seed_with_the_interval_of_scipy(two: list[Path]) -> None:
    found = row(rayfl.compare(*two), "fast")
    by_scipy = stats.ttest_rel([0.60, 0.61], [0.50, 0.53]).confidence_interval(0.95)
    assert (found["reference"], found["pairs"]) == ("plain", 2)
    assert found["difference"] == pytest.approx(0.09)
    assert found["difference"] - found["margin"] == pytest.approx(by_scipy.low)
    assert found["difference"] + found["margin"] == pytest.approx(by_scipy.high)
    low, high = (f"{100 * value:+.2f}".replace("-", "−") for value in by_scipy)
    assert cells(rayfl.compare(*two), "fast")["difference to plain"] == f"+9.00 [{low}, {high}]"


def test_another_reference_turns_the_sign(two: list[Path]) -> None:
    found = row(rayfl.compare(*two, reference="fast"), "plain")
    assert (found["reference"], found["difference"]) == ("fast", pytest.approx(-0.09))


def test_seeds_of_a_task_are_averaged_before_tasks_are_compared(tmp_path: Path) -> None:
    ours, theirs = [[0.5, 0.7], [0.4, 0.5], [0.9, 0.8]], [[0.4, 0.4], [0.5, 0.5], [0.6, 0.8]]
    found = row(rayfl.compare(with_tasks(tmp_path, {"A": theirs, "B": ours})), "B")
    tasks, others = np.mean(ours, axis=1), np.mean(theirs, axis=1)
    interval = stats.ttest_rel(tasks, others).confidence_interval(0.95)
    assert (found["repetitions"], found["pairs"]) == (3, 3)
    assert found["mean"] == pytest.approx(tasks.mean())
    assert found["deviation"] == pytest.approx(tasks.std(ddof=1))
    assert found["difference"] + found["margin"] == pytest.approx(interval.high)


def test_a_single_seed_has_a_difference_but_no_interval(tmp_path: Path) -> None:
    comparison = rayfl.compare(a_run(tmp_path / "a", "a", 0, [0.5]), a_run(tmp_path / "b", "b", 0, [0.4]))
    assert (row(comparison, "b")["difference"], row(comparison, "b")["margin"]) == (pytest.approx(-0.1), None)
    assert cells(comparison, "b")["difference to a"] == "−10.00"
    assert "A single pair has no interval: run more seeds or tasks to get one." in comparison.notes
    assert "±" not in comparison.markdown


def test_runs_without_a_common_seed_are_compared_without_differences(tmp_path: Path) -> None:
    comparison = rayfl.compare(a_run(tmp_path / "a", "a", 0), a_run(tmp_path / "b", "b", 1))
    assert [column for column in comparison.text_tables[0].header if "difference" in column] == []
    assert row(comparison, "b")["difference"] is None


@pytest.mark.parametrize(
    ("at", "expected"),
    [("last", 0.6), ("best", 0.9), ("mean_last_5", (0.3 + 0.9 + 0.4 + 0.5 + 0.6) / 5), (15, 0.9), (30, 0.6)],
)
def test_scores_come_from_the_rounds_asked_for(tmp_path: Path, at: Any, expected: float) -> None:
    run = a_run(tmp_path / "a", "a", 0, [0.1, 0.3, 0.9, 0.4, 0.5, 0.6])
    assert row(rayfl.compare(run, at=at), "a")["mean"] == pytest.approx(expected)


def test_other_words_for_a_round_are_an_error(tmp_path: Path) -> None:
    wrong: Any = "first"
    with pytest.raises(rayfl.ScenarioError, match=r"^at: must be last, best, mean_last_5 or the number of a round"):
        rayfl.compare(a_run(tmp_path / "a", "a"), at=wrong)


def test_other_metrics_are_of_the_round_with_the_best_headline_metric(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", "a", 0, {"test_accuracy": [0.2, 0.8, 0.4], "test_loss": [3.0, 2.0, 1.0]})
    comparison = rayfl.compare(run, metrics=["test_loss"], at="best")
    assert row(comparison, "a", "test_loss")["mean"] == 2


def test_the_best_round_is_chosen_on_validation_samples_where_the_headline_is(tmp_path: Path) -> None:
    headline = {"metric": "accuracy", "higher_is_better": True, "is_share": True, "on": "validation", "phases": []}
    columns: dict[str, list[float | None]] = {
        "validation_accuracy": [0.2, 0.9, 0.4],
        "test_accuracy": [0.3, 0.5, 0.8],
    }
    environment = {"headline": headline, "data": {"name": "mine", "source": "arrays"}}
    run = a_run(tmp_path / "a", "a", 0, columns, environment=environment)
    assert row(rayfl.compare(run, at="best"), "a")["mean"] == 0.5
    columns["validation_accuracy"] = [None, None, None]
    lost = a_run(tmp_path / "b", "b", 0, columns, environment=environment)
    assert cells(rayfl.compare(run, lost, at="best"), "b")["test accuracy, %"] == "–"
    listed = rayfl.compare(run, lost, at="best", list_runs=True)
    assert cells(listed, "b", 1) == {
        "": "b",
        "seed": "0",
        "best": "–",
        "in round": "–",
        "mean of the last 5": "53.33",
        "last": "80.00",
    }


def test_smoothing_comes_before_anything_else(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", "a", 0, [0.0, 0.9, 0.0, 0.0, 0.6])
    comparison = rayfl.compare(run, at="best", smooth=3, target=0.25)
    assert row(comparison, "a")["mean"] == pytest.approx(0.6)
    assert row(comparison, "a")["rounds_to_target"] == 10
    assert "smoothed over 3 evaluated rounds" in comparison.text_tables[0].caption


def test_smoothing_reaches_into_no_other_phase(tmp_path: Path) -> None:
    scores = {"test_accuracy": [0.1, 0.3, 0.5, 0.7]}
    phases = [("cyclic", 4), ("federated", 4)]
    run = write_run(tmp_path / "a", "a", 0, scores, rounds=(2, 4, 6, 8), phases=phases)
    assert row(rayfl.compare(run, at=4, smooth=3), "a")["mean"] == pytest.approx(0.3)


def test_the_best_is_bold_and_lower_losses_are_better(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / name, name, 0, {"test_accuracy": [accuracy], "test_loss": [loss]})
        for name, accuracy, loss in (("a", 0.5, 1.0), ("b", 0.6, 1.5), ("c", 0.4, 0.5))
    ]
    comparison = rayfl.compare(*runs, metrics=["test_accuracy", "test_loss"])
    assert bold(comparison) == {("b", "test accuracy, %")}
    assert bold(comparison, 1) == {("c", "test loss")}
    assert "| b | **60.00** |" in comparison.markdown
    assert "<b>60.00</b>" in comparison._repr_html_()


def test_counts_have_no_decimals(tmp_path: Path) -> None:
    columns: dict[str, list[float | None]] = {"test_accuracy": [0.1, 0.2, 0.3], "unavailable": [1, 2, 4]}
    one = write_run(tmp_path / "a", "a", 0, columns)
    comparison = rayfl.compare(one, metrics="unavailable")
    assert cells(comparison, "a")["unavailable"] == "4"
    other = write_run(tmp_path / "b", "a", 1, columns | {"unavailable": [1, 2, 6]})
    comparison = rayfl.compare(one, other, metrics="unavailable")
    assert cells(comparison, "a")["unavailable"] == "5.000 ± 1.414"


def test_scores_that_look_the_same_are_both_bold(tmp_path: Path) -> None:
    values = {"a": 0.60001, "b": 0.60002, "c": 0.5}
    runs = [a_run(tmp_path / name, name, 0, [value]) for name, value in values.items()]
    assert bold(rayfl.compare(*runs)) == {("a", "test accuracy, %"), ("b", "test accuracy, %")}
    assert bold(rayfl.compare(*runs[:2])) == set()


def test_seeds_and_pairs_are_counted_in_the_caption_where_all_rows_have_as_many(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / f"{name}{seed}", name, seed, [seed / 10]) for name in "ab" for seed in range(3)]
    table = rayfl.compare(*runs).text_tables[0]
    assert table.header == ("", "test accuracy, %", "difference to a")
    assert "sample standard deviation over 3 seeds; differences" in table.caption
    assert rayfl.compare(*runs[:5]).text_tables[0].header == (
        "",
        "test accuracy, %",
        "seeds",
        "difference to a",
        "pairs",
    )


def test_directions_of_other_metrics_are_rayfls_own_or_the_scenarios(tmp_path: Path) -> None:
    own = '[[evaluation.metrics]]\nname = "mine:spread"\nlabel = "spread"\nhigher_is_better = false\n'
    columns = {"test_accuracy": [0.5], "test_perplexity": [9.0], "test_spread": [0.3], "test_unheard_of": [1.0]}
    runs = [
        a_run(tmp_path / "a", "a", 0, columns, scenario=own),
        a_run(tmp_path / "b", "b", 0, {name: [2 * value for value in values] for name, values in columns.items()}),
    ]
    comparison = rayfl.compare(*runs, metrics=["test_perplexity", "test_spread", "test_unheard_of"])
    assert [bold(comparison, place) for place in range(3)] == [
        {("a", "test perplexity")},
        {("a", "test spread")},
        set(),
    ]


def test_the_direction_of_a_users_own_metric_is_not_guessed_from_its_name(tmp_path: Path) -> None:
    own = '[evaluation]\nmetrics = ["accuracy", "mine:focal_loss", "mine:rate_perplexity", "mine:accuracy_of_mine"]\n'
    names = ["test_focal_loss", "test_rate_perplexity", "test_accuracy_of_mine"]
    runs = [
        a_run(tmp_path / label, label, 0, {name: [value] for name in ("test_accuracy", *names)}, scenario=own)
        for label, value in (("a", 0.5), ("b", 0.75))
    ]
    comparison = rayfl.compare(*runs, metrics=names)
    assert [bold(comparison, place) for place in range(3)] == [set()] * 3


def costly(folder: Path, seed: int, accuracy: list[float], title: str = "run") -> Path:
    rounds = range(1, len(accuracy) + 1)
    columns: dict[str, Sequence[float]] = {
        "test_accuracy": accuracy,
        "bytes": [2_000_000 * number for number in rounds],
        "transfers": [40 * number for number in rounds],
        "epsilon": [0.5 * number for number in rounds],
        "simulated_seconds": [60 * number for number in rounds],
    }
    phases = (
        '[data]\nclients = 30\n[[phases]]\nname = "warm_up"\nrounds = 5\nschedule = "relay"\ncohort = 0.1\n'
        '[[phases]]\nname = "federated"\nrounds = 20\nschedule = "parallel"\ncohort = 4\n'
    )
    return a_run(folder, title, seed, columns, scenario=phases)


def test_a_target_is_reached_in_the_first_round_that_is_as_good_and_costs_what_it_cost_until_then(
    tmp_path: Path,
) -> None:
    comparison = rayfl.compare(
        costly(tmp_path / "0", 0, [0.1, 0.5, 0.4, 0.7]), costly(tmp_path / "1", 1, [0.1, 0.2, 0.3, 0.8]), target=0.5
    )
    found = row(comparison, "run")
    assert (found["reached"], found["runs"], found["rounds_to_target"]) == (2, 2, 15)  # rounds 10 and 20
    assert found["client_updates_to_target"] == ((5 * 3 + 5 * 4) + (5 * 3 + 15 * 4)) / 2
    assert (found["bytes_to_target"], found["transfers_to_target"]) == (6_000_000, 120)
    assert (found["epsilon_to_target"], found["simulated_seconds_to_target"]) == (1.5, 180)
    shown = cells(comparison, "run")
    assert (shown["reached 50 %"], shown["bytes, MB"], shown["client updates"]) == ("2 of 2 runs", "6", "55")


def test_runs_that_miss_the_target_are_counted_and_not_averaged(tmp_path: Path) -> None:
    comparison = rayfl.compare(
        *(costly(tmp_path / f"a{seed}", seed, [0.1, 0.6 if seed else 0.2], "half") for seed in range(3)),
        *(costly(tmp_path / f"b{seed}", seed, [0.1, 0.2], "none") for seed in range(3)),
        *(costly(tmp_path / f"c{seed}", seed, [0.3, 0.4, 0.6], "all") for seed in range(3)),
        target=0.6,
    )
    assert cells(comparison, "half")["reached 60 %"] == "2 of 3 runs"
    assert cells(comparison, "half")["rounds"] == "10"
    assert cells(comparison, "none")["reached 60 %"] == "not reached by 3 runs"
    assert cells(comparison, "none")["rounds"] == "–"
    assert ("all", "rounds") in bold(comparison)
    assert ("half", "rounds") not in bold(comparison)


def test_a_target_of_a_loss_is_reached_from_above(tmp_path: Path) -> None:
    run = a_run(
        tmp_path / "a",
        "a",
        0,
        {"test_loss": [3.0, 2.0, None, 0.5]},
        environment={"headline": HEADLINE_LOSS, "data": {"name": "mine", "source": "arrays"}},
    )
    assert row(rayfl.compare(run, target=1.9), "a", "test_loss")["rounds_to_target"] == 20


def test_client_updates_are_left_out_where_the_scenario_does_not_tell(tmp_path: Path) -> None:
    drawn = 'schedule = "parallel"\ncohort = { bernoulli = 0.1 }'
    budget = 'schedule = "parallel"\ncohort = 3\n[phases.local.dp]\nnoise_multiplier = 1.0\nmax_epsilon = 2.0'
    for number, phase in enumerate((drawn, 'schedule = "asynchronous"\ncohort = 3', budget)):
        scenario = f'[[phases]]\nname = "federated"\nrounds = 20\n{phase}\n'
        comparison = rayfl.compare(a_run(tmp_path / str(number), "a", 0, [0.5], scenario=scenario), target=0.1)
        assert "client updates" not in comparison.text_tables[0].header
        assert cells(comparison, "a")["rounds"] == "5"


def test_scores_that_are_not_finite_are_missing_and_counted(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / str(seed), "a", seed, {"test_accuracy": [0.5], "test_loss": [None if seed else 1.0]})
        for seed in range(3)
    ]
    comparison = rayfl.compare(*runs, metrics=["test_loss"])
    assert row(comparison, "a", "test_loss")["repetitions"] == 1
    assert cells(comparison, "a")["seeds"] == "1 of 3"


def test_seeds_beside_a_grid_with_tasks_are_counted_as_seeds(tmp_path: Path) -> None:
    with_tasks(tmp_path / "grid", {"A": [[0.5, 0.6], [0.4, 0.5]]})
    lost = tmp_path / "grid" / "A" / "column" / "seed_1" / "task_1" / "metrics.jsonl"
    lost.write_text(lost.read_text().replace("0.5", "null"))
    runs = [a_run(tmp_path / str(seed), "alone", seed, [0.1]) for seed in range(3)]
    comparison = rayfl.compare(tmp_path / "grid", *runs)
    found = {entries[0]: table for table in comparison.text_tables for entries in table.rows}
    shown = {label: dict(zip(table.header, table.rows[0], strict=True)) for label, table in found.items()}
    assert "over 3 seeds" in found["alone"].caption
    assert shown["A"]["tasks"] == "2, less 1 run"


def test_rounds_of_other_tasks_are_left_out(tmp_path: Path) -> None:
    headline = {**HEADLINE_LOSS, "metric": "accuracy", "higher_is_better": True, "phases": ["supervised"]}
    run = a_run(
        tmp_path / "a",
        "a",
        0,
        [0.9, 0.4],
        environment={"headline": headline, "data": {"name": "mine", "source": "arrays"}},
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[1]["phase"] = "supervised"
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert row(rayfl.compare(run, at="best"), "a")["mean"] == 0.4


def test_every_run_is_listed_if_asked_for(tmp_path: Path) -> None:
    first = a_run(tmp_path / "a", "cyclic", 0, [0.1, 0.5, 0.7, 0.6, 0.6, 0.6, 0.5])
    second = a_run(tmp_path / "b", "fedavg", 1, [0.2, 0.3])
    printed = rayfl.compare(first, second, list_runs=True).markdown
    assert "| cyclic | 0 | 70.00 | 15 | 60.00 | 50.00 |" in printed
    assert "| fedavg | 1 | 30.00 | 10 | 25.00 | 30.00 |" in printed
    assert "| cyclic | 0 |" not in rayfl.compare(first, second).markdown


def test_columns_of_a_grid_have_tables_of_their_own(tmp_path: Path) -> None:
    for method, column, value in (("A", "x", 0.1), ("B", "x", 0.2), ("A", "y", 0.9), ("B", "y", 0.6)):
        a_run(tmp_path / method / column / "seed_0", GridPlace("Grid", method, column, 0), 0, [value])
    comparison = rayfl.compare(tmp_path)
    assert [table.caption.partition(":")[0] for table in comparison.text_tables] == ["x", "y"]
    assert [bold(comparison, place) for place in range(2)] == [
        {("B", "test accuracy, %")},
        {("A", "test accuracy, %")},
    ]
    assert comparison.table["difference"].to_pylist() == [None, pytest.approx(0.1), None, pytest.approx(-0.3)]


def test_rows_of_a_grid_can_have_tables_in_which_columns_are_compared(tmp_path: Path) -> None:
    for row, column, value in (("A", "x", 0.1), ("B", "x", 0.2), ("A", "y", 0.9), ("B", "y", 0.6)):
        a_run(tmp_path / row / column / "seed_0", GridPlace("Grid", row, column, 0), 0, [value])
    table = rayfl.compare(tmp_path, panels="rows", labels=["left", "right"]).table
    shown = table.select(["panel", "label", "reference", "difference"]).to_pylist()
    assert [(found["panel"], found["label"]) for found in shown] == [
        ("A", "left"),
        ("A", "right"),
        ("B", "left"),
        ("B", "right"),
    ]
    assert [found["difference"] for found in shown] == [None, pytest.approx(0.8), None, pytest.approx(0.4)]


def test_other_versions_of_the_same_code_and_data_are_listed_below_the_table(tmp_path: Path) -> None:
    def told(records: list[tuple[str, dict[str, Any]]]) -> list[str]:
        folders = []
        for number, (name, environment) in enumerate(records):
            folder = tmp_path / f"{len(list(tmp_path.iterdir()))}_{name}"
            scenario = '[data]\nname = "mine"\n'
            folders.append(a_run(folder, name, number, scenario=scenario, environment=environment))
        names = {str(folder): folder.name.partition("_")[2] for folder in folders}
        notes = [note for note in rayfl.compare(*folders).notes if note.startswith("Different versions")]
        for path, name in names.items():
            notes = [note.replace(path, name) for note in notes]
        return notes

    def records(code: dict[str, str], digest: str, files: bool = False, seed: int = 0) -> dict[str, Any]:
        read = [{"path": "x.npz", "sha256": digest}] if files else []
        return {
            "code": code,
            "data": {"name": "mine", "source": "arrays", "seed": seed, "files": read, "digest": digest},
        }

    generated = [
        ("a", records({"mine": "1", "net": "1"}, "1")),
        ("b", records({"mine": "2", "net": "1"}, "2")),
        ("c", records({"mine": "2"}, "3", seed=1)),
    ]
    assert told(generated) == [
        "Different versions of the code of mine: a | b, c.",
        "Different versions of the data of mine with seed 0: a | b.",
    ]
    read = [
        (name, records({}, digest, files=True, seed=int(name == "c")))
        for name, digest in zip("abc", "112", strict=True)
    ]
    assert told(read) == ["Different versions of the data of mine: a, b | c."]
    assert told(read[:2]) == []


def test_notes_say_what_the_data_was(tmp_path: Path) -> None:
    environment = {"data": {"name": "femnist", "source": "generated"}}
    comparison = rayfl.compare(a_run(tmp_path / "a", "a", environment=environment))
    assert comparison.notes == ["Data: femnist (generated, no real data)."]
    assert "generated, no real data" in comparison.markdown
    assert "generated, no real data" in repr(comparison)
    assert "generated, no real data" in comparison._repr_html_()


def test_results_of_runs_and_grids_can_be_compared(tmp_path: Path) -> None:
    result = SimpleNamespace(directory=a_run(tmp_path / "a", "a"))
    assert rayfl.compare(result).table["label"].to_pylist() == ["a"]


def test_notebooks_show_labels_literally(tmp_path: Path) -> None:
    html = rayfl.compare(a_run(tmp_path / "a", "a<b & c"))._repr_html_()
    assert "a&lt;b &amp; c" in html
    assert "<td>a<b" not in html


def test_smoothing_that_changes_no_score_is_an_error(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", "a", 0, [0.0, 0.9, 0.6])
    with pytest.raises(rayfl.ScenarioError, match=r"^smooth: has no effect .* use at = 'mean_last_5' or 'best'$"):
        rayfl.compare(run, smooth=3)
    of_target = rayfl.compare(run, smooth=3, target=0.4)
    assert row(of_target, "a")["mean"] == 0.6
    assert row(of_target, "a")["rounds_to_target"] == 10
    assert "after the last round;" in of_target.text_tables[0].caption
    assert "reached the target, smoothed over 3 evaluated rounds, means" in of_target.text_tables[0].caption
    listed = rayfl.compare(run, smooth=3, list_runs=True).text_tables
    assert ["smoothed" in table.caption for table in listed] == [False, True]


def test_runs_of_one_title_are_named_by_the_settings_that_tell_them_apart(tmp_path: Path) -> None:
    def a_variant(number: int, algorithm: str, lr: float = 0.1, cohort: int = 4, momentum: float = 0.0) -> Path:
        local = f"local = {{ lr = {lr}, momentum = {momentum} }}"
        phase = f'[[phases]]\nname = "federated"\nschedule = "parallel"\nrounds = 5\ncohort = {cohort}\n'
        phase += f"algorithm = {algorithm}\n{local}"
        return a_run(tmp_path / str(number), "study", scenario=f'[data]\nname = "digits"\nclients = 20\n{phase}')

    variants = [
        a_variant(0, '{ name = "fedavg" }'),
        a_variant(1, '{ name = "fedavgm" }'),
        a_variant(2, '{ name = "mine:FedACG", lam = 0.7 }'),
        a_variant(3, '{ name = "mine:FedACG", lam = 0.5 }'),
        *(a_variant(4 + n, '{ name = "scaffold" }', 0.1 * (n + 1), 5 + n % 2, 0.9 - n / 10) for n in range(4)),
    ]
    labels = rayfl.compare(*variants).table["label"].to_pylist()
    assert labels[:4] == ["fedavg", "fedavgm", "FedACG, lam = 0.7", "FedACG, lam = 0.5"]
    assert len(set(labels)) == len(variants)
    renamed = rayfl.compare(*variants, labels=[f"run {number}" for number in range(8)])
    assert renamed.table["label"].to_pylist() == [f"run {number}" for number in range(8)]
    beside = rayfl.compare(*variants[:2], a_run(tmp_path / "b", "other"))
    assert beside.table["label"].to_pylist() == ["study (fedavg)", "study (fedavgm)", "other"]


def test_runs_that_differ_in_their_callbacks_are_named_by_them(tmp_path: Path) -> None:
    def with_callbacks(number: int, callbacks: str) -> Path:
        return a_run(tmp_path / str(number), "study", scenario=f"callbacks = [{callbacks}]")

    stopping = '{ name = "early_stopping", patience = 5 }'
    variants = [
        "",
        stopping,
        f'{{ name = "my.module:Watch" }}, {stopping}',
        '{ name = "early_stopping", patience = 9 }',
    ]
    runs = [with_callbacks(number, callbacks) for number, callbacks in enumerate(variants)]

    def labels(*chosen: int) -> list[str]:
        found: list[str] = rayfl.compare(*(runs[number] for number in chosen)).table["label"].to_pylist()
        return found

    assert labels(0, 1) == ["no early_stopping", "early_stopping"]
    assert labels(1, 2) == ["no Watch", "Watch"]
    assert labels(1, 3) == ["patience = 5", "patience = 9"]


def test_settings_equal_as_numbers_are_one_group_and_true_and_text_are_others(tmp_path: Path) -> None:
    def with_option(number: int, value: str) -> Path:
        data = f'[data]\nname = "mine:source"\noptions = {{ a = {value}, b = [{value}, 2] }}'
        return a_run(tmp_path / str(number), "study", number, [0.25 * number], scenario=data)

    values = ["1", "1.0", "true", '"1"', "2"]
    one, *others = rayfl.compare(*(with_option(number, value) for number, value in enumerate(values))).table.to_pylist()
    assert (one["runs"], one["mean"]) == (2, 0.125)
    assert [other["runs"] for other in others] == [1, 1, 1]
    assert len({row["label"] for row in [one, *others]}) == 4


def test_runs_of_one_grid_with_other_settings_or_other_data_are_no_repetitions(tmp_path: Path) -> None:
    def of_the_grid(name: str, seed: int, column: str, rate: float, source: str = "files") -> Path:
        place = GridPlace("study", "FedAvg", column, seed)
        folder = write_run(tmp_path / name, place, seed, {"test_accuracy": [0.1, 0.2, rate]})
        scenario = folder / "scenario.toml"
        scenario.write_text(scenario.read_text().replace("cohort = 0.2", f"cohort = 0.2\nlocal = {{ lr = {rate} }}"))
        environment = json.loads((folder / "environment.json").read_text())
        environment["data"]["source"] = source
        (folder / "environment.json").write_text(json.dumps(environment))
        return folder

    runs = [of_the_grid("0", 0, "c", 0.3), of_the_grid("1", 1, "c", 0.3), of_the_grid("2", 0, "c", 0.5)]
    assert rayfl.compare(*runs).table.select(["label", "runs"]).to_pylist() == [
        {"label": "FedAvg (lr = 0.3)", "runs": 2},
        {"label": "FedAvg (lr = 0.5)", "runs": 1},
    ]
    found = rayfl.compare(*runs[:2], of_the_grid("3", 2, "c", 0.3, "generated")).table
    assert found["label"].to_pylist() == ["FedAvg (source = files)", "FedAvg (source = generated)"]
    assert found["runs"].to_pylist() == [2, 1]


def test_rows_of_two_grids_have_one_name_in_all_columns(tmp_path: Path) -> None:
    places = [("one", "c"), ("one", "d"), ("two", "c")]
    runs = [
        write_run(tmp_path / f"{grid}_{column}", GridPlace(grid, "FedAvg", column, 0), 0, {"test_accuracy": [0.1] * 3})
        for grid, column in places
    ]
    assert rayfl.compare(*runs).table["label"].to_pylist() == ["one: FedAvg", "two: FedAvg", "one: FedAvg"]
