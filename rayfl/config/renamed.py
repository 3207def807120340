"""Renamed keys: a file that still uses an old name gets an error with the new one."""

from __future__ import annotations

from fnmatch import fnmatchcase

RENAMED = {
    "phases.*.algorithm.report": "phases.*.eval_model",
    "phases.*.algorithm.server_lr": "phases.*.algorithm.server_optimizer.lr",
    "phases.*.cohort.given": "phases.*.cohort.explicit",
    "phases.*.local.fixed_last": "phases.*.train",
    "evaluation.personalize.fixed_last": "evaluation.personalize.train",
    "resources.patience_s": "resources.watchdog_s",
}
"""The new key path for every old one. `*` stands for a phase, by number or name."""


def new_name(key: str) -> str | None:
    """The new name of the key path; None if it was never a key."""
    for old, new in RENAMED.items():
        if fnmatchcase(key, old) and key.count(".") == old.count("."):
            phase = key.split(".")[1]
            return new.replace("*", phase)
    return None
