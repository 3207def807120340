"""What notebooks show, in a kernel of Jupyter's."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import tomli_w
from rich.console import Console

import rayfl
from rayfl.errors import ScenarioError
from rayfl.notebook import Block, console_of, ending_block
from tests.callbacks.scene import PLAIN, tables

FOUR_ROUNDS = tables(phases=[PLAIN], resources={})


def executed(cells: list[str], folder: Path) -> list[dict[str, Any]]:
    """The outputs of all cells but the first, which makes this checkout importable."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook()
    found = f"sys.path.insert(0, {str(Path(rayfl.__file__).parents[1])!r})"
    first = f"import sys, warnings; {found}; warnings.simplefilter('error')"
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in (first, *cells)]
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    outputs: list[dict[str, Any]] = [output for cell in notebook.cells[1:] for output in cell.outputs]
    return outputs


@pytest.fixture
def _this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is this very interpreter, whatever kernels the machine knows."""
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "rayfl", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    assert os.environ["JUPYTER_PATH"]


@pytest.mark.slow
@pytest.mark.usefixtures("_this_python")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nbclient's own
def test_a_live_table_is_updated_in_place_and_the_result_is_a_table_and_its_curves(tmp_path: Path) -> None:
    outputs = executed(
        [
            "import rayfl",
            f"scenario = {FOUR_ROUNDS!r} | {{'callbacks': ['live_table']}}",
            "result = rayfl.run(scenario, backend='inline', quiet=True)",
            "result",
        ],
        tmp_path,
    )
    assert [output["output_type"] for output in outputs] == ["display_data", "execute_result"], outputs
    live, shown = (output["data"]["text/html"] for output in outputs)
    assert live.count("<tr>") - 1 == 4, "one table, as the last update left it"
    assert "scene: round 4 of 4, finished" in live
    assert "scene: 4 rounds, best test accuracy" in shown
    assert shown.count("<tr>") - 1 == 4
    assert re.search(r"<td[^>]*><b>[0-9.]+ %</b></td>", shown)
    assert 'src="data:image/png;base64,iVBOR' in shown
    assert "http" not in shown
    assert outputs[1]["data"]["text/plain"].startswith("<Result scene: 4 rounds, best test accuracy ")


@pytest.mark.slow
@pytest.mark.usefixtures("_this_python")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nbclient's own
def test_a_comparison_and_a_plot_are_shown_once(tmp_path: Path) -> None:
    outputs = executed(
        [
            "import rayfl",
            f"result = rayfl.run({FOUR_ROUNDS!r}, backend='inline', quiet=True)",
            "rayfl.compare(result)",
            "rayfl.plot(result)",
        ],
        tmp_path,
    )
    assert [output["output_type"] for output in outputs] == ["execute_result", "execute_result"], outputs
    assert outputs[0]["data"]["text/html"].count("<table") == 1
    assert "</svg>" in outputs[1]["data"]["image/svg+xml"]


@pytest.mark.slow
@pytest.mark.usefixtures("_this_python")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # nbclient's own
def test_the_progress_of_a_run_and_of_a_grid_is_one_block_that_ends_as_the_result(tmp_path: Path) -> None:
    scene = tmp_path / "scene.toml"
    scene.write_text(tomli_w.dumps(FOUR_ROUNDS))
    grid = {"name": "two", "scenario": str(scene), "rows": {"one": {}}, "columns": {"here": {}}, "seeds": [0, 1]}
    outputs = executed(
        [
            "import rayfl",
            f"result = rayfl.run({FOUR_ROUNDS!r}, backend='inline')\nresult",
            f"cells = rayfl.grid({grid!r}, backend='inline')",
            "result",
        ],
        tmp_path,
    )
    kinds = ["display_data", "execute_result", "display_data", "execute_result"]
    assert [output["output_type"] for output in outputs] == kinds, outputs
    block, again, cells, later = (output["data"]["text/html"] for output in outputs)
    assert "scene: 4 rounds, best test accuracy" in block
    assert 'src="data:image/png;base64,iVBOR' in block
    assert again == "", "the cell shows it already"
    assert later == block
    assert cells.startswith("<table><caption>")
    assert "<pre" not in cells


class Shown:
    """What a notebook would show: the last HTML of every output."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.changes = 0

    def display(self, html: Any, display_id: bool) -> Shown:
        assert display_id
        self.outputs.append(html.data)
        return self

    def update(self, html: Any) -> None:
        self.outputs[-1] = html.data
        self.changes += 1


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    pytest.importorskip("IPython", reason="IPython is not installed")
    shown = Shown()
    monkeypatch.setattr("IPython.display.display", shown.display)
    return shown


def test_a_block_keeps_its_lines_renews_the_last_and_ends_as_a_result(shown: Shown) -> None:
    seconds = iter([0.0, 1.0, 1.0, 1.1, 2.0, 2.0, 3.0, 4.0])
    block = Block(lambda: next(seconds))
    console = Console(file=cast(Any, block), force_jupyter=False, width=40)
    console.print("model <mlp>")
    block.renew("round 1")
    assert re.fullmatch(r"<pre [^>]*>model &lt;mlp&gt;\nround 1</pre>", shown.outputs[-1])
    block.renew("round 2")  # a tenth of a second later: too soon
    assert shown.outputs[-1].endswith("round 1</pre>")
    block.renew("round 3")
    assert shown.outputs[-1].endswith("\nround 3</pre>")
    block.end("<table></table>")
    assert shown.outputs == ["<table></table>"]
    console.print("next")
    assert len(shown.outputs) == 2


def test_what_a_failed_call_printed_stays_below_its_own_cell(shown: Shown) -> None:
    console = Console(file=cast(Any, Block()), force_jupyter=False)

    def fail() -> None:
        with ending_block(console):
            console.print("first")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    console.print("second")
    assert ["first" in output for output in shown.outputs] == [True, False]


def test_a_call_is_silent_or_has_a_console_of_its_own() -> None:
    assert console_of(None, quiet=True).quiet
    own = Console()
    assert console_of(own, quiet=False) is own
    with pytest.raises(ScenarioError, match="quiet: has no effect with a console; leave one of them out"):
        console_of(own, quiet=True)


def test_a_result_whose_best_round_is_chosen_on_other_samples_says_so(tmp_path: Path) -> None:
    one = tables(phases=[PLAIN | {"rounds": 1}], resources={})
    one["data"] |= {"validation_share": 0.4}
    result = rayfl.run(one, backend="inline", out=tmp_path, quiet=True)
    (row,) = result.metrics.to_pylist()
    assert repr(result).startswith(
        f"<Result scene: 1 round, best validation accuracy {100 * row['validation_accuracy']:.2f} % in round 1, test "
        f"accuracy in that round {100 * row['test_accuracy']:.2f} %, in "
    )


def test_a_result_is_short_in_words_and_survives_the_loss_of_its_folder(tmp_path: Path) -> None:
    result = rayfl.run(FOUR_ROUNDS, backend="inline", out=tmp_path, quiet=True)
    best = max(result.metrics["test_accuracy"].to_pylist())
    assert f"<Result scene: 4 rounds, best test accuracy {100 * best:.2f} % in round " in repr(result)
    assert repr(result).endswith(f", in {result.directory}>")
    assert len(repr(result)) < 200 + len(str(result.directory))
    result.directory.rename(tmp_path / "elsewhere")
    assert repr(result) == f"<Result scene: 4 rounds, in {result.directory}>"
    assert "<img" not in result._repr_html_()
    assert "<table>" in result._repr_html_()
    result.directory.mkdir()
    (result.directory / "environment.json").write_text('{"headline": ')
    assert repr(result) == f"<Result scene: 4 rounds, in {result.directory}>"
