"""The command line of `python -m tools.algorithm_curves`.

Runs every algorithm once in a small setting on Fashion-MNIST, in this process, and draws a picture of each beside
FedAvg. Runs whose records are kept are not repeated, so an interrupted call continues.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from tools.algorithm_curves.drawing import draw
from tools.algorithm_curves.records import is_kept, run
from tools.algorithm_curves.settings import CURVES, curve_of, reference_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDS = DOCS / "records" / "algorithms"
FIGURES = DOCS / "figures" / "algorithms"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing and draws the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.algorithm_curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help="only these (default: all)")
    parser.add_argument("--records", type=Path, default=RECORDS, metavar="FOLDER", help="of the kept runs")
    parser.add_argument("--figures", type=Path, default=FIGURES, metavar="FOLDER", help="of the pictures")
    options = parser.parse_args(arguments)
    known = dict.fromkeys(curve.algorithm for curve in CURVES)
    for name in options.algorithms:
        if name not in known:
            parser.error(f"there is no curve of '{name}'; known: {', '.join(known)}")
    for name in options.algorithms or known:
        curve = curve_of(name)
        for one in dict.fromkeys((reference_of(curve), curve)):
            if not is_kept(one, options.records):
                began = time.process_time()
                run(one, options.records)
                print(f"{one.name}: {time.process_time() - began:.0f} s of CPU time", flush=True)
        draw(curve, options.records, options.figures)


if __name__ == "__main__":
    main()
