"""`rayfl data`: prints and draws the split of a scenario's data among its clients, and prepares data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_scenario, command_parser
from rayfl.cli.prepared_data import prepare_main, verify_main
from rayfl.console import print_line

if TYPE_CHECKING:
    import numpy as np

    from rayfl.config.data import Data
    from rayfl.data.dataset import ClientNames
    from rayfl.data.split_facts import SplitFacts

EXAMPLES = """\
examples:
  {prog} fashion_mnist_cyclic
  {prog} fashion_mnist_cyclic data.partition.beta=0.5 data.seed=1 --out split.png
  {prog} my/own.toml --clients
  {prog} prepare femnist_cyclic prepared/femnist     # write data that runs read from disk; see prepare --help
  {prog} verify prepared/femnist                     # compare it with its digests
"""

PERCENTILES = {"min": 0, "25 %": 25, "median": 50, "75 %": 75, "max": 100}
"""Columns of the overview."""

SHOWN = 3
"""Number of classes to show for each client."""

WIDE = 10_000
"""Width of a line about a client, whatever the terminal: names are never folded."""


def main(arguments: Sequence[str] | None = None, prog: str = "rayfl data") -> int:
    """Runs the command; `exit_status` explains its exit status. Wrong options exit with 2."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    if words[:1] == ["prepare"]:
        return prepare_main(words[1:], f"{prog} prepare")
    if words[:1] == ["verify"]:
        return verify_main(words[1:], f"{prog} verify")
    of_command = parser(prog)
    options = of_command.parse_intermixed_args(words)
    if not options.name:
        of_command.error("name a scenario")
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "Print and draw the split of a scenario's data among its clients.", EXAMPLES)
    add_scenario(parser, "scenario")
    parser.add_argument(
        "--clients", action="store_true", help="also print a line for every client, with its name and classes"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the picture, .png, .svg or .pdf (default: SCENARIO-split.png)"
    )
    return parser


def _execute(options: argparse.Namespace) -> int:
    from rayfl.cli.data_pictures import draw_sheet
    from rayfl.config.loader import load_scenario
    from rayfl.data.client_rows import ClientRows
    from rayfl.data.files import cache_folder, data_folder
    from rayfl.data.inputs import Rendered
    from rayfl.data.split_facts import empty_classes, shown_split, split_facts
    from rayfl.data.store import build_store
    from rayfl.errors import ResourceError
    from rayfl.runs.figures.recorded_run import DataNote
    from rayfl.runs.figures.split import draw_split
    from rayfl.runs.figures.style import check_suffix
    from rayfl.runs.resolution import resolve

    if options.out:
        check_suffix(options.out)
    scenario = resolve(load_scenario(options.name, options.overrides, options.quick))
    store = build_store(scenario.data, scenario.data_seed, data_folder(options.data_dir).absolute(), cache_folder())
    facts = split_facts(store)
    console, note = Console(), empty_classes(store)
    for line in (
        f"{scenario.title or scenario.name} (data seed {scenario.data_seed})",
        f"data     {store.provenance.source}: {store.provenance.description}",
        f"         {store.summary()}",
        *([f"note     {note}"] if note else []),
    ):
        print_line(console, line)
    measured = {"training samples": facts.sizes, **{f"{name} samples": s for name, s in facts.held_out.items()}}
    if facts.classes is not None and facts.distances is not None:
        measured |= {"classes": facts.classes, "distance": facts.distances}
    console.print(_overview(measured))
    if isinstance(store.train.y, ClientRows):
        console.print("labels are loaded with each client, so classes are not counted", highlight=False)
    elif facts.distances is None:
        console.print("labels are not classes; data.labels_by can derive classes from them", highlight=False)
    else:
        console.print("distance: total variation between the classes of a client and of all clients", highlight=False)
    if options.clients:
        Console(width=WIDE).print(_by_client(measured, store.client_names, facts))
    picture = options.out or Path(f"{scenario.name}-split.png")
    title, images = scenario.title or scenario.name, store.train.x
    pictures = [picture]
    try:
        data = DataNote(scenario.data.name, store.provenance.source)
        heading = f"{title}\n{_partition(scenario.data)}"
        draw_split(shown_split(store), facts, heading, data, picture)
        if isinstance(images, Rendered):
            pictures.append(picture.with_name(f"{picture.stem}-images.png"))
            draw_sheet(images, title, data, scenario.data_seed, pictures[-1])
    except OSError as error:
        raise ResourceError(f"--out: cannot write {picture} ({error.strerror or error})") from error
    for path in pictures:
        print_line(console, f"picture  {path}")
    return 0


def _partition(data: Data) -> str:
    chosen = data.partition
    if chosen is None:
        return "the data's default partition"
    options = ", ".join(f"{key} = {value}" for key, value in chosen.options.items())
    return f"partition {chosen.name}" + (f" ({options})" if options else "")


def _overview(measured: dict[str, np.ndarray]) -> Table:
    import numpy as np  # takes longer to load than the shell's completion should

    table = _table("by client", *PERCENTILES, "mean")
    for name, values in measured.items():
        statistics = [*np.percentile(values, list(PERCENTILES.values())), values.mean()]
        table.add_row(name, *(f"{value:.3f}" if values.dtype.kind == "f" else f"{value:,.6g}" for value in statistics))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _by_client(measured: dict[str, np.ndarray], names: ClientNames | None, facts: SplitFacts) -> Table:
    table = Table("client", box=None, pad_edge=False)
    if names is not None:
        table.add_column("owner")
    for name in measured:
        table.add_column(name, justify="right")
    if facts.labels is not None:
        table.add_column("most frequent classes")
    largest = facts.largest_classes(SHOWN) if facts.labels is not None else None
    for client, values in enumerate(zip(*measured.values(), strict=True)):
        cells = [Text(names[client])] if names is not None else []
        cells += [Text(f"{value:.3f}" if isinstance(value, float) else f"{value:,}") for value in values]
        if largest is not None:
            cells.append(Text(", ".join(f"{label} ({share:.0%})" for label, share in next(largest))))
        table.add_row(str(client), *cells)
    return table
