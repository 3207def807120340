"""The schedules by name. Each is a class whose `config` declares the keys of its phases."""

from __future__ import annotations

from rayfl.registry import Registry

schedules = Registry(
    "schedule",
    {
        "parallel": "rayfl.engine.schedules.parallel:Parallel",
        "relay": "rayfl.engine.schedules.relay:Relay",
        "buffered": "rayfl.engine.schedules.buffered:Buffered",
        "asynchronous": "rayfl.engine.schedules.fully_asynchronous:FullyAsynchronous",
        "local": "rayfl.engine.schedules.alone:Alone",
        "central": "rayfl.engine.schedules.central:Central",
    },
)
