"""Ray's text, where runs in several threads share a connection."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import ray._private.worker as ray_worker
from ray._private.ray_logging import global_worker_stdstream_dispatcher as dispatcher

from rayfl.backends.ray.log import RayLog, ray_text_in
from rayfl.backends.ray.private import OUTPUT_HANDLER as HANDLER

LINE = {"pid": "raylet", "lines": ["a node was lost"], "is_err": True}


def test_logs_may_be_opened_and_closed_in_any_order(tmp_path: Path) -> None:
    shown: list[Any] = []
    dispatcher.add_handler(HANDLER, shown.append)
    before = ray_worker.print_to_stdstream
    try:
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(ray_text_in(RayLog(tmp_path / "first")))
            second.enter_context(ray_text_in(RayLog(tmp_path / "second")))
            ray_worker.print_to_stdstream(LINE, False)
            first.close()
            dispatcher.emit(LINE)
        assert ray_worker.print_to_stdstream is before
        assert [handler for name, handler in dispatcher.handlers if name == HANDLER] == [shown.append]
        dispatcher.emit(LINE)
    finally:
        dispatcher.remove_handler(HANDLER)
    assert (tmp_path / "first").read_text().count("a node was lost") == 1
    assert (tmp_path / "second").read_text().count("a node was lost") == 2
    assert shown == [LINE]


def test_a_full_disk_raises_nothing_in_place_of_the_error_that_is_logged_and_lines_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.log.HELD_LINES", 20)
    log = RayLog(Path("/dev/full"))
    for number in range(25):
        log.write(f"line {number}")
    log.begin(tmp_path / "ray.log")
    lines = [line.partition(") ")[2] for line in (tmp_path / "ray.log").read_text().splitlines()]
    assert lines == [f"line {number}" for number in range(5, 25)]
