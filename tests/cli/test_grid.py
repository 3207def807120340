"""The command line `rayfl grid`: runs, output, files and exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayfl.cli.grid import EXAMPLES, main
from rayfl.studies.grid.cell_runs import alone_in
from rayfl.studies.grid.cells import Cell
from tests.cli.test_run import MY_ARRAYS, TINY

GRID = """\
title = "A small grid [in brackets]"
scenario = "tiny"
seeds = [0, 1]
skip = ["Cyclic/4"]

[rows]
FedAvg = { phases.cyclic.rounds = 0 }
Cyclic = {}

[columns]
2 = { phases.federated.cohort = 2 }
4 = { phases.federated.cohort = 4 }

[published.best]
FedAvg.2 = 93.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project: a grid, its scenario, and the module with its arrays."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "tiny.toml").write_text(TINY)
    (tmp_path / "scenarios" / "small.grid.toml").write_text(GRID)
    (tmp_path / "my_arrays.py").write_text(MY_ARRAYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_arrays", raising=False)
    return tmp_path


def finished(folder: Path) -> set[str]:
    grid = folder / "runs" / "small"
    return {str(marker.parent.relative_to(grid)) for marker in grid.rglob("finished.json")}


def test_list_shows_names_titles_and_the_number_of_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "small" in line]
    assert line.split() == ["small", "A", "small", "grid", "[in", "brackets]", "6"]


def test_a_grid_is_run_and_its_table_printed_and_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["small", "--backend", "inline"]) == 0
    said = capsys.readouterr().out
    assert finished(folder) == {
        f"{cell}/seed_{seed}" for cell in ("FedAvg/2", "FedAvg/4", "Cyclic/2") for seed in (0, 1)
    }
    assert "A small grid [in brackets] (grid small)" in said
    assert "2 rows × 2 columns, 1 skipped" in said
    assert "6, with 2 seeds per cell; 0 finished already" in said
    markdown = (folder / "runs" / "small" / "table.md").read_text()
    row = next(line for line in markdown.splitlines() if line.startswith("| Cyclic |"))
    assert row.endswith("| not run |")
    assert "(93.50)" in markdown
    assert "(93.50)" in said
    assert pq.read_table(folder / "runs" / "small" / "table.parquet").num_rows == 6


def test_a_second_call_runs_what_is_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["small", "--backend", "inline", "--only", "FedAvg/2", "--seed", "0"]) == 0
    assert finished(folder) == {"FedAvg/2/seed_0"}
    stands = (folder / "runs" / "small" / "FedAvg" / "2" / "seed_0" / "metrics.jsonl").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["small", "--backend", "inline", "--only", "FedAvg/*"]) == 0
    said = capsys.readouterr().out
    assert "1 finished already" in said
    assert "FedAvg / 4 / seed 0: best" in said
    assert "FedAvg / 2 / seed 0: best" not in said
    assert finished(folder) == {f"FedAvg/{column}/seed_{seed}" for column in (2, 4) for seed in (0, 1)}
    again = (folder / "runs" / "small" / "FedAvg" / "2" / "seed_0" / "metrics.jsonl").stat().st_mtime_ns
    assert again == stands


def test_seeds_are_chosen_by_number(folder: Path) -> None:
    assert main(["small", "--backend", "inline", "--only", "*/2", "--seed", "1"]) == 0
    assert finished(folder) == {"FedAvg/2/seed_1", "Cyclic/2/seed_1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["small", "--table-only", "--seed", "0"], "--seed: has no effect with --table-only"),
        (["small", "--table-only", "--backend", "ray"], "--backend: has no effect with --table-only"),
        (["small", "--backend", "inline", "--address", "auto"], "--address: has no effect with --backend inline"),
        (["--list", "--only", "*/2"], "--only: has no effect with --list"),
        (["small", "--list"], "small: has no effect with --list"),
    ],
)
def test_an_option_without_an_effect_is_refused_by_name(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert capsys.readouterr().err.endswith(f"error: {message}; leave it out\n")


def test_table_only_runs_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["small", "--table-only"]) == 0
    assert "not run (93.50)" in capsys.readouterr().out
    assert finished(folder) == set()
    assert (folder / "runs" / "small" / "table.md").exists()


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        (
            'metrics = ["best"]\nfigures = ["test_acuracy"]\n',
            "figures: no column of metrics.jsonl is called 'test_acuracy'; did you mean 'test_accuracy'",
        ),
        (
            'overrides = { callbacks = [{ name = "best_model", metric = "test_los", mode = "min" }] }\n',
            "callbacks.0.metric: no metric is called 'test_los'; did you mean 'test_loss'",
        ),
    ],
    ids=["figure", "callback"],
)
def test_a_column_that_no_run_will_have_is_named_before_the_first_run(
    folder: Path, capsys: pytest.CaptureFixture[str], added: str, complaint: str
) -> None:
    (folder / "scenarios" / "small.grid.toml").write_text(GRID.replace("[rows]", f"{added}\n[rows]"))
    assert main(["small", "--backend", "inline"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: FedAvg / 2 / seed 0: ")
    assert complaint in line
    assert not list(folder.rglob("metrics.jsonl"))


def test_other_overrides_than_before_are_rejected(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["small", "--backend", "inline", "--only", "FedAvg/2", "--seed", "0"]
    assert main([*arguments, "phases.federated.local.lr=0.2"]) == 0
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: FedAvg / 2 / seed 0: ")
    assert "phases.federated.local.lr: 0.2 before, 0.1 now" in said


def test_a_table_says_what_the_command_line_changed_of_the_grid(folder: Path) -> None:
    changed = ["phases.federated.local.lr=0.2", "resources.restarts=0"]
    assert main(["small", "--backend", "inline", "--quick", "--only", "FedAvg/2", "--seed", "0", *changed]) == 0
    table = (folder / "runs" / "small" / "table.md").read_text()
    assert "**Not the grid as shipped: --quick, phases.federated.local.lr=0.2.**" in table.splitlines()


def test_runs_on_different_data_make_no_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["small", "--backend", "inline", "--only", "FedAvg/*", "--seed", "0"]) == 0
    runs = folder / "runs" / "small"
    for column, digest in (("2", "0" * 64), ("4", "1" * 64)):
        environment = runs / "FedAvg" / column / "seed_0" / "environment.json"
        facts = json.loads(environment.read_text())
        facts["data"] |= {"source": "files", "files": [{"path": "a", "sha256": digest}]}
        environment.write_text(json.dumps(facts))
    capsys.readouterr()
    assert main(["small", "--table-only"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: two runs used different data: FedAvg / 2 / seed 0 (files, sha256 0000000000000000…) "
        "and FedAvg / 4 / seed 0 (files, sha256 1111111111111111…); remove the folder of one, "
        f"'{runs}/FedAvg/2/seed_0' or '{runs}/FedAvg/4/seed_0', to run it again"
    )


def test_a_grid_that_another_process_runs_can_only_be_looked_at(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = folder / "runs" / "small"
    runs.mkdir(parents=True)
    with alone_in(runs):
        assert main(["small", "--backend", "inline"]) == 1
        assert main(["small", "--table-only"]) == 0
    assert f"error: another process is running this grid in '{runs}'" in capsys.readouterr().err


def test_failed_runs_are_named_at_the_end_and_the_status_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = GRID.replace("Cyclic = {}", 'Cyclic = { model = "tests.user_code:RaisesInTraining" }')
    (folder / "scenarios" / "small.grid.toml").write_text(failing)
    assert main(["small", "--backend", "inline", "--quick", "--out", "results"]) == 1
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: Cyclic / 2 / seed 0: client ")
    assert lines[0].endswith("results/small/Cyclic/2/seed_0/run.log)")
    assert "4 of 6 runs, 2 failed" in said.out
    table = folder / "results" / "small" / "table.md"
    assert "| Cyclic | failed | not run |" in table.read_text()
    assert pq.read_table(table.with_suffix(".parquet"))["status"].to_pylist() == ["finished"] * 4 + ["failed"] * 2
    assert main(["small", "--table-only", "--quick", "--out", "results"]) == 0
    assert "Failed runs" in capsys.readouterr().out


def test_a_cell_that_its_data_does_not_fit_is_rejected_before_any_other_starts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "scenarios" / "small.grid.toml").open("a") as grid:
        grid.write("[overrides]\nphases.cyclic.cohort = 9\n")
    assert main(["small", "--backend", "inline"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: Cyclic / 2 / seed 0: phases.cyclic.cohort: 9 clients per round, but there are 4")
    assert finished(folder) == set()
    assert main(["small", "--backend", "inline", "--only", "FedAvg/2", "--seed", "0"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smal"], "error: no grid 'smal'; did you mean 'small'?"),
        (["small", "--data-dir", "gone"], "error: --data-dir: there is no folder 'gone'"),
        (["small", "--only", "FedAvg"], "error: only: 'FedAvg' is not row/column (* stands for any)"),
        (["small", "--seed", "9"], "error: this grid has no seed 9; its seeds are [0, 1]"),
        (["small", "--task", "0"], "error: this grid has no tasks; leave out the choice of tasks"),
        (["small", "--only", "Fedavg/2"], "error: only: there is no row 'Fedavg'; did you mean 'FedAvg'"),
        (["small", "seed=3"], "seed: a grid uses `seeds` instead"),
        (["small", "--out", "my_arrays.py"], "my_arrays.py/small': Not a directory; choose another one with --out"),
    ],
)
def test_errors_are_one_message_on_stderr_and_exit_1(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said


def test_ctrl_c_leaves_what_is_finished_and_says_how_to_go_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rayfl.studies.grid.cell_runs import run_cell

    ran: list[Cell] = []

    def interrupted(cell: Cell, data_dir: Path, *_: object) -> str | None:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell)
        return run_cell(cell, data_dir)

    monkeypatch.setattr("rayfl.studies.grid.cell_runs.run_cell", interrupted)
    assert main(["small", "--backend", "inline"]) == 130
    assert "interrupted: run the same command again for the remaining cells" in capsys.readouterr().err
    assert len(finished(folder)) == 2
    assert pq.read_table(folder / "runs" / "small" / "table.parquet").num_rows == 2


@pytest.mark.parametrize("arguments", [[], ["small", "--backend", "slurm"]])
def test_wrong_use_exits_with_2_and_the_usage(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: rayfl grid" in capsys.readouterr().err


def test_help_explains_options_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert EXAMPLES.format(prog="rayfl grid").strip() in said
    for option in (
        "--list",
        "--only",
        "--seed",
        "--table-only",
        "--quick",
        "--backend",
        "--address",
        "--out",
        "--data-dir",
    ):
        assert option in said


def test_a_shipped_grid_in_full_names_the_data_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = {}
    for name in ("coprefl_pacs_domains", "coprefl_table_5", "fps_table_3"):
        assert main([name, "--backend", "inline", "--data-dir", str(tmp_path)]) == 1
        said[name] = capsys.readouterr().err
        assert said[name].count("\n") == 1
    instead = "; for generated data instead, use --quick or data.source=generated\n"
    assert said["coprefl_pacs_domains"].startswith("error: FedAvg / Art / seed 0 / task 0: PACS not found: unpack PACS")
    assert said["coprefl_pacs_domains"].endswith(instead)
    # CIFAR-100, which the tasks need, comes before ImageNet, which has no stand-in
    assert "CIFAR-100 not found: python -m rayfl.data.download cifar100" in said["coprefl_table_5"]
    assert "Federated / Random / seed 0: Tiny-ImageNet not found: " in said["fps_table_3"]
