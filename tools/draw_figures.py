"""python -m tools.draw_figures [NAME ...]: draws the figures of the documentation again from their records.

Runs the commands of the gallery whose entries say that records are kept or not needed, and draws the curves of the
algorithms from theirs. The same records and versions give the same bytes. NAME is the name of a file, such as
`femnist_private.png`; by default all are drawn.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery" / "index.md"
CURVES = "python -m tools.algorithm_curves"

_ENTRY = re.compile(r"^:::\{grid-item-card\} ", re.MULTILINE)
_COMMAND = re.compile(r"^ *((?:rayfl|python -m) .*docs/figures/([\w.]+).*)$", re.MULTILINE)
_DRAWABLE = re.compile(r"\*\*(?:records kept|needs no records)\*\*", re.IGNORECASE)


def commands(gallery: str) -> dict[str, str]:
    """The command of every figure that can be drawn without repeating a run, by the name of its file."""
    found: dict[str, str] = {}
    for entry in _ENTRY.split(gallery)[1:]:
        if _DRAWABLE.search(entry):
            found |= {name: command for command, name in _COMMAND.findall(entry)}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws the figures."""
    known = commands(GALLERY.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args(arguments).names
    for name in names:
        if name not in known:
            parser.error(f"'{name}' is no figure that can be drawn again; known: {', '.join(known)}")
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    for command in [known[name] for name in names] or [*known.values(), CURVES]:
        print(command, flush=True)
        subprocess.run(["bash", "-c", command], check=True, cwd=ROOT, env=environment)


if __name__ == "__main__":
    main()
