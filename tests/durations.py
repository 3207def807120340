"""What quick tests take, kept in `durations.json`: files that take long start first, and long tests say why.

`make durations` writes it anew. A test file is run by one process, so that its tests share what its fixtures make.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

KEPT = Path(__file__).with_name("durations.json")
LIMIT = 2.0
"""Seconds, of a process among two, beyond which a quick test carries its reason: `@pytest.mark.takes("why")`."""
WORTH_KEEPING = 0.5
"""Seconds from which a test is listed by itself."""

_seconds: defaultdict[str, float] = defaultdict(float)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives all tests of a file to one process; marks `xdist_group` are not seen by pytest-xdist 3.8 with pytest 9."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]


def kept() -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by file, and by test where it takes long."""
    content = json.loads(KEPT.read_text())
    return content["files"], content["tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-durations", action="store_true", help=f"write what tests take to {KEPT.name}")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, since the last one to end keeps the others waiting.

    Files that share the session's Ray cluster come after all others, since a process joins one cluster at a time.
    """
    files, _ = kept()
    sharing = {item.path for item in items if "ray_cluster" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path in sharing, -files.get(item.nodeid.partition("::")[0], 0.0)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--keep-durations") or hasattr(session.config, "workerinput"):
        return
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in _seconds.items():
        files[test.partition("::")[0]] += seconds
    tests = {test: round(seconds, 1) for test, seconds in sorted(_seconds.items()) if seconds >= WORTH_KEEPING}
    content = {"files": {file: round(files[file], 1) for file in sorted(files)}, "tests": tests}
    KEPT.write_text(json.dumps(content, indent=1) + "\n")
