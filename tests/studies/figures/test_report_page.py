"""`rayfl report`: one file on a run or a grid, which needs nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.__main__ import main
from rayfl.console import TextTable
from rayfl.errors import ResourceError
from rayfl.runs.archive import GridPlace
from rayfl.runs.figures.style import MOST_LINES
from rayfl.studies.figures.groups import read
from rayfl.studies.figures.page.report import layout, write_report
from rayfl.studies.figures.page.sections import statistics_table
from rayfl.studies.grid.place import folder_name
from tests.studies.figures.recorded_runs import write_run
from tests.studies.figures.scene import with_tasks

HEADINGS = [
    "Results",
    "Learning curves",
    "Split among clients",
    "Fairness over clients",
    "Privacy",
    "Environment",
    "Scenario",
]
COLUMNS = {
    "test_accuracy": [0.2, 0.5, 0.4],
    "test_loss": [2.0, 1.5, 1.25],
    "test_accuracy_mean": [0.2, 0.45, 0.375],
    "test_accuracy_lowest_10": [0.0, 0.1, 0.125],
    "epsilon": [1.0, 2.0, 3.0],
}
CHROMIUM = shutil.which("chromium")


class Elements(HTMLParser):
    """The texts of headings and cells, addresses, and tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self._open = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("td", "th", "a") and self.rows:
            self.rows[-1][-1] += data
        if self._open == "h2":
            self.headings[-1] += data


def page_of(folder: Path) -> tuple[str, Elements]:
    html = write_report(folder).path.read_text(encoding="utf-8")
    return html, Elements(html)


@pytest.fixture
def rendered() -> None:
    """For tests whose pages need their pictures, which take longer than all else."""


@pytest.fixture(autouse=True)
def _not_rendered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "rendered" not in request.fixturenames:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(b"<svg/>"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A private run whose clients were scored."""
    folder = write_run(tmp_path / "run", "A <script>alert(1)</script> title", 3, COLUMNS)
    environment = json.loads((folder / "environment.json").read_text())
    environment |= {"packages": {"torch": "9.8.7"}, "python": "3.11.7", "hosts": [{"device": "cpu"}]}
    environment["data"] |= {"summary": "20 clients with 5 to 9 training samples", "digest": "c0ffee", "files": []}
    (folder / "environment.json").write_text(json.dumps(environment))
    scores = [{"round": 6, "client": c, "set": "test", "samples": 5 + c % 3, "accuracy": c / 20} for c in range(20)]
    pq.write_table(pa.Table.from_pylist(scores), folder / "clients.parquet")
    histogram = {"edges": [0.0, 2.0, 4.0], "clients": [15, 5], "infinite": 0}
    epsilon = {"maximum": 3.0, "median": 1.5, "histogram_by_rdp": histogram}
    samples = {"unit": "one training sample", "delta": 1e-5, "rounds": 6, "epsilon": epsilon, "not_covered": ["scores"]}
    (folder / "privacy.json").write_text(json.dumps({"samples": samples}))
    return folder


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A grid whose third run failed."""
    folder = tmp_path / "grid"
    table = []
    for row, seed, last in (("FedAvg", 0, 0.4), ("FedAvg", 1, 0.6), ("Fed<b>Prox", 0, None)):
        key = {"row": row, "column": "4 clients", "seed": seed, "task": None, "data": "digits"}
        if last is None:
            table.append(key | {"status": "diverged", "reason": "the loss of <client> 3 is nan", "data_source": None})
            continue
        columns = {"test_accuracy": [0.1, 0.2, last], "test_accuracy_variance": [0.0, 0.01, 0.02 * (1 + seed)]}
        write_run(
            folder / folder_name(row) / folder_name("4 clients") / f"seed_{seed}",
            GridPlace("G", row, "4 clients", seed),
            seed,
            columns,
        )
        table.append(key | {"status": "finished", "last": 100 * last, "data_source": "generated", "reason": None})
    pq.write_table(pa.Table.from_pylist(table), folder / "table.parquet")
    rows = "|  | 4 clients |\n| --- | --- |\n| FedAvg | 50 ± 14 |"
    text = f"# A grid\n\nLast round.\n\n{rows}\n\n**Mind this.**\n\n## Runs\n\nx\n"
    (folder / "table.md").write_text(text)
    return folder


def test_the_page_of_a_run_has_its_results_split_fairness_privacy_and_environment(run: Path) -> None:
    html, page = page_of(run)
    assert page.headings == HEADINGS
    for row in (
        ["test accuracy, best", "50.00 %", "round 4"],
        ["test accuracy, last", "40.00 %", "round 6"],
        ["test accuracy, mean", "36.67 %", "last 3 evaluations"],
        ["test accuracy", "40.00 %", "50.00 %", "round 4"],
        ["test loss", "1.25", "1.25", "round 6"],
        ["test accuracy, mean over clients", "37.50 %"],
        ["test accuracy, worst 10\N{NO-BREAK SPACE}% of clients", "12.50 %"],
        ["test accuracy (%)", "20", "0", "9.5", "47.5", "85.5", "95", "47.5"],
        ["what is hidden", "one training sample"],
        ["seed", "3"],
        ["torch", "9.8.7"],
        ["SHA-256 of all samples", "c0ffee"],
    ):
        assert row in page.rows
    assert "Data: digits (generated, no real data)" in html
    assert "20 clients with 5 to 9 training samples." in html
    assert "ε = 3 (largest of any client; median 1.5), δ = 1e-05, after round 6" in html
    assert page.tags.count("img") == 5  # curves, sizes, scores, the result by epsilon, and epsilons of clients


def test_a_run_with_scores_of_classes_has_their_table_and_the_confusion_matrix(tmp_path: Path) -> None:
    columns = {"test_accuracy": [0.1, 0.2, 0.6], "test_recall": [0.1, 0.2, 0.5]}
    folder = write_run(
        tmp_path / "run", "title", 0, columns | {"test_recall/0": [0.5, 0.5, 1.0], "test_recall/1": [None, None, 0.0]}
    )
    (folder / "confusion.json").write_text('{"phase": "federated", "round": 6, "samples": [[6, 0], [4, 0]]}')
    html, page = page_of(folder)
    assert page.headings == [*HEADINGS[:2], "Classes", *HEADINGS[2:]]
    assert ["class 0", "1"] in page.rows
    assert ["class 1", "0"] in page.rows
    assert ["test recall", "0.5", "0.5", "round 6"] in page.rows
    assert "Test samples of each class by predicted class, after round 6" in html
    (folder / "confusion.json").write_text('{"phase": "federated", "round": 6, "samples": [[6, 0], [4]]}')
    with pytest.raises(ResourceError, match=r"confusion\.json: cannot be read as a confusion matrix, .*not square"):
        write_report(folder)


def test_the_split_that_a_run_recorded_is_drawn_and_a_damaged_one_names_its_file(run: Path) -> None:
    split = {"num_clients": 3, "clients": [0, 1, 2], "samples": {"training": [4, 1, 5], "client_test": [1, 1, 1]}}
    (run / "split.json").write_text(json.dumps(split | {"counts": [[4, 0], [0, 1], [2, 3]], "overall": [6, 4]}))
    html, _ = page_of(run)
    assert "Samples of 3 clients, the share of each class, the number of classes, and the total variation" in html
    assert "Clients by their number of" not in html
    (run / "split.json").write_text(json.dumps(split | {"counts": None, "overall": None}))
    assert "<figcaption>Samples of 3 clients</figcaption>" in page_of(run)[0]
    for damaged in (split, split | {"counts": [[1, 2], [3]], "overall": [1]}):
        (run / "split.json").write_text(json.dumps(damaged))
        with pytest.raises(ResourceError, match=r"split\.json: cannot be read as a split"):
            write_report(run)


def test_texts_of_users_are_escaped(run: Path, grid: Path) -> None:
    html, page = page_of(run)
    assert "script" not in page.tags
    assert "<h1>A &lt;script&gt;alert(1)&lt;/script&gt; title</h1>" in html
    html, page = page_of(grid)
    assert "b" not in page.tags
    assert any("the loss of <client> 3 is nan" in row for row in page.rows)


def test_a_page_needs_nothing_outside_itself_and_leads_to_runs_alone(run: Path, grid: Path, rendered: None) -> None:
    for folder in (run, grid):
        html, page = page_of(folder)
        assert page.addresses
        outside = [unquote(address) for address in page.addresses if not address.startswith(("data:", "#"))]
        assert all((folder / address).resolve().is_relative_to(folder) for address in outside)
        assert len(outside) == (0 if folder == run else 2)
        assert not re.search(r"url\(|@import", html)
        assert not {"script", "iframe", "object", "embed", "base"} & set(page.tags)


def test_the_page_of_a_grid_has_its_tables_curves_and_failures(grid: Path) -> None:
    html, page = page_of(grid)
    assert page.headings == [*HEADINGS, "Runs"]
    assert ["FedAvg", "50 ± 14"] in page.rows
    assert "<li>Mind this.</li>" in html
    assert "2 finished, 1 diverged of 3 recorded runs" in html
    assert ["FedAvg", "4 clients", "1", "finished", "60", ""] in page.rows
    assert ["FedAvg / 4 clients", "300.00 ± 141.42 %²"] in page.rows  # of 0.02 and 0.04
    assert page.tags.count("img") == 1


def test_small_losses_are_listed_with_their_digits_and_a_single_seed_promises_no_deviation(grid: Path) -> None:
    assert "mean ± standard deviation over seeds" in page_of(grid)[0]
    rows = pq.read_table(grid / "table.parquet").to_pylist()[:1]
    pq.write_table(pa.Table.from_pylist([rows[0] | {"last": 0.0042}]), grid / "table.parquet")
    shutil.rmtree(grid / folder_name("FedAvg") / folder_name("4 clients") / "seed_1")
    html, page = page_of(grid)
    assert ["FedAvg", "4 clients", "0", "finished", "0.0042"] in page.rows
    assert "After the last evaluated round" in html
    assert "±" not in html.partition("Fairness over clients</h2>")[2]


def test_more_lines_than_a_figure_holds_are_no_reason_to_advise_on_options(tmp_path: Path) -> None:
    html, _ = page_of(with_tasks(tmp_path / "grid", {f"row {number}": [[0.1]] for number in range(MOST_LINES + 1)}))
    said = f"{MOST_LINES + 1} lines cannot be told apart in one figure, {MOST_LINES} can. Draw a selection with"
    assert f"Not drawn: {said} rayfl plot." in html


@pytest.fixture
def under_way(run: Path) -> Path:
    """The run in round 8 of 12, of which the first four were another phase and took a second each."""
    rows = [
        {"phase": "cyclic", "round": 4, "round_in_phase": 4, "test_accuracy": 0.1, "seconds": 4.0},
        {"phase": "federated", "round": 6, "round_in_phase": 2, "test_accuracy": 0.2, "seconds": 24.0},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    status = {"status": "running", "reason": None, "rounds": 12, "committed_rounds": 8, "phase": "federated"}
    (run / "status.json").write_text(json.dumps(status))
    return run


def test_the_page_of_a_run_under_way_renews_itself_and_says_round_and_time_left(under_way: Path) -> None:
    html = write_report(under_way, follow=True).path.read_text()
    assert '<meta http-equiv="refresh" content="5">' in html
    assert "running</span>: round 8 of 12, phase federated; about 40 s left" in html  # 4 rounds of 10 s
    assert "http-equiv" not in page_of(under_way)[0], "nobody writes it again"


def test_a_run_is_followed_until_it_has_ended(
    under_way: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            (under_way / "status.json").write_text('{"status": "finished", "committed_rounds": 6}')

    monkeypatch.setattr("rayfl.cli.figures.time.sleep", sleep)
    assert main(["report", str(under_way), "--follow"]) == 0
    assert slept == [5, 5]
    html = (under_way / "report.html").read_text()
    assert 'http-equiv="refresh"' not in html
    assert "finished</span>" in html
    assert "written again every 5 s" in capsys.readouterr().out


def test_the_page_of_a_grid_links_the_pages_and_folders_of_its_runs(grid: Path, tmp_path: Path) -> None:
    first, second = (f"FedAvg/{folder_name('4 clients')}/seed_{seed}" for seed in (0, 1))
    write_report(grid / first)
    _, page = page_of(grid)
    links = [unquote(address) for address in page.addresses if not address.startswith(("data:", "#"))]
    assert links == [f"{first}/report.html", second]
    html = write_report(grid, tmp_path / "page.html").path.read_text()
    assert f'href="{quote(f"grid/{second}")}"' in html


@pytest.mark.parametrize("missing", ["maximum", "edges", "infinite"])
def test_a_damaged_privacy_json_is_an_error_that_names_the_file(run: Path, missing: str) -> None:
    path = run / "privacy.json"
    path.write_text(path.read_text().replace(f'"{missing}"', '"other"'))
    with pytest.raises(ResourceError, match=rf"privacy\.json: cannot be read .*\(it has no '{missing}'\)"):
        write_report(run)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("environment.json", "packages", []),
        ("environment.json", "driver", 3),
        ("environment.json", "numerics", True),
        ("environment.json", "hosts", {"device": "cpu"}),
        ("environment.json", "hosts", ["cpu"]),
        ("environment.json", "data", "femnist"),
        ("environment.json", "data", {"summary": 1.5}),
        ("environment.json", "data", {"name": ["femnist"]}),
        ("environment.json", "data", {"files": None}),
        ("environment.json", "headline", {"metric": 1.0}),
        ("status.json", "stopped", [1, "a"]),
        ("metrics.jsonl", "round", [1]),
        ("metrics.jsonl", "round", None),
    ],
)
def test_a_record_of_a_wrong_type_is_an_error_that_names_the_file(
    name: str, key: str, value: object, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / name
    (run / "status.json").write_text('{"status": "finished", "committed_rounds": 6}')
    first, _, rest = path.read_text().partition("\n") if name == "metrics.jsonl" else (path.read_text(), "", "")
    path.write_text(f"{json.dumps(json.loads(first) | {key: value})}\n{rest}")
    assert main(["report", str(run)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: cannot be read as the ")
    assert said.count("\n") == 1


def test_a_time_that_is_not_finite_is_shown_as_missing(run: Path) -> None:
    path = run / "metrics.jsonl"
    rows = map(json.loads, path.read_text().splitlines())
    path.write_text("".join(f"{json.dumps(row | {'seconds': None})}\n" for row in rows))
    assert ["time of the rounds", "–", "up to round 6"] in page_of(run)[1].rows


def test_scores_of_clients_are_those_of_the_last_round(run: Path) -> None:
    before = page_of(run)[1].rows
    rows = pq.read_table(run / "clients.parquet").to_pylist()
    earlier = [row | {"round": 4, "accuracy": 0.0} for row in rows]
    trained = [{"round": 7, "client": 1, "set": None, "samples": 9, "accuracy": None}]  # trained, and was not scored
    pq.write_table(pa.Table.from_pylist([*earlier, *rows, *trained]), run / "clients.parquet")
    assert page_of(run)[1].rows == before


def test_statistics_over_clients_average_the_seeds_of_a_task_first(tmp_path: Path) -> None:
    recorded = read(with_tasks(tmp_path / "grid", {"random": [[0.1, 0.3], [0.3, 0.5]]}))
    table = statistics_table(recorded, ["test_accuracy"], "")
    assert table.rows == [["random / column", "30.00 ± 14.14 %"]]  # of 20 and 40


def test_a_grid_of_which_only_the_table_was_kept_says_so_in_place_of_curves(grid: Path) -> None:
    shutil.rmtree(grid / folder_name("FedAvg"))
    html, page = page_of(grid)
    assert "the rounds of finished runs are not in this folder" in html
    assert "img" not in page.tags


def test_a_run_that_failed_has_a_page_that_says_why(run: Path) -> None:
    status = {"status": "failed", "reason": "worker <2> ran out of memory", "rounds": 10, "committed_rounds": 6}
    (run / "status.json").write_text(json.dumps(status))
    html, page = page_of(run)
    assert '<span class="status failed">failed</span>: worker &lt;2&gt; ran out of memory; 6 of 10 rounds' in html
    assert page.headings == HEADINGS


def test_a_run_without_any_evaluated_round_has_a_page_too(run: Path) -> None:
    for name in ("metrics.jsonl", "clients.parquet", "privacy.json"):
        (run / name).unlink()
    (run / "status.json").write_text('{"status": "interrupted", "reason": null, "committed_rounds": 0, "rounds": 6}')
    html, page = page_of(run)
    assert "No round was evaluated." in html
    assert "img" not in page.tags


def test_a_private_run_that_failed_before_its_account_is_not_said_to_be_without_privacy(run: Path) -> None:
    (run / "privacy.json").unlink()
    assert "The run uses no differential privacy, and states no guarantee." in page_of(run)[0]
    with (run / "scenario.toml").open("a") as file:
        file.write("[phases.local.dp]\nnoise_multiplier = 1.0\n")
    assert "trains with differential privacy, but has not stated its guarantee yet" in page_of(run)[0]


def test_columns_of_prose_wrap_and_numbers_do_not() -> None:
    table = TextTable("", ["row", "seconds", "reason"], [["FedAvg", "12 s", ""], ["FedProx", "9 s", "diverged " * 9]])
    assert layout(table) == ("numbers short", ["", "", "prose"])
    assert layout(TextTable("", ["", "a long heading " * 9], [["FedAvg", "1"]])) == ("words short", ["", ""])


@pytest.mark.parametrize(("columns", "rows", "expected"), [(10, 24, "numbers short"), (11, 25, "numbers wide")])
def test_a_wide_table_wraps_in_print_and_only_a_long_one_is_divided(columns: int, rows: int, expected: str) -> None:
    assert layout(TextTable("", ["ten digits"] * columns, [["0123456789"] * columns] * rows)).table == expected


def test_the_command_writes_the_file_and_names_folders_that_are_neither(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"report  {out}\n"
    assert out.read_bytes() == write_report(run).path.read_bytes()
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty")]) == 1
    assert capsys.readouterr().err == (
        f"error: '{tmp_path / 'empty'}' holds neither a run nor a grid: it has no metrics.jsonl and no table.parquet; "
        "name a folder below runs/\n"
    )
    assert main(["report", str(tmp_path / "gone")]) == 1
    assert capsys.readouterr().err == f"error: '{tmp_path / 'gone'}' does not exist; name a folder below runs/\n"
    assert main(["report", str(run), "--out", "page.pdf"]) == 1
    assert capsys.readouterr().err == "error: out: 'page.pdf' has no supported suffix; use .html, .htm\n"
    assert main(["report", str(run), "--out", str(tmp_path / "none" / "page.html")]) == 1
    assert re.fullmatch(r"error: out: '.*' cannot be written \(No such file or directory\)\n", capsys.readouterr().err)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("name", ["run", "grid"])
def test_a_browser_shows_headings_and_figures(
    name: str, tmp_path: Path, rendered: None, request: pytest.FixtureRequest
) -> None:
    page = write_report(request.getfixturevalue(name)).path
    assert CHROMIUM is not None
    options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    options += " --disable-component-update --disable-sync --dump-dom"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *options.split(), profile, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    shown = Elements(done.stdout)
    assert shown.headings == (HEADINGS if name == "run" else [*HEADINGS, "Runs"])
    assert shown.tags.count("img") == (5 if name == "run" else 1)
    assert len(shown.rows) > 5
