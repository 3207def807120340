"""Runs a checkout's golden tests, and writes the outcome of each, with what is recorded."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest


class Outcomes:
    """Collects outcomes; a test that fails says why, which tells whether it still fails in the same way."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.found[report.nodeid] = f"{report.outcome} {crash.message if crash else ''}".strip()


def main() -> None:
    out, checkout, outcomes = Path(sys.argv[1]), Path(os.environ["CHECKOUT"]), Outcomes()
    os.chdir(checkout)
    pytest.main(["tests/golden", "-q", "-p", "no:cacheprovider"], plugins=[outcomes])
    if not outcomes.found:
        raise SystemExit("no golden test ran")
    (out / "outcomes.json").write_text(json.dumps(outcomes.found, indent=1))
    shutil.copytree(checkout / "tests/golden/recorded", out / "recorded")


if __name__ == "__main__":
    main()
