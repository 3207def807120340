"""constraints.txt holds every package that the Makefile installs, in one version each, wherever it comes from."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parent.parent
LINES = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def needed(requirements: list[str], found: set[str]) -> None:
    """Adds the names of requirements that apply here, and of what they need in turn."""
    for requirement in map(Requirement, requirements):
        extras = requirement.extras or {""}
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        for extra in extras:
            name = canonicalize_name(requirement.name)
            if (key := f"{name}[{extra}]") in found:
                continue
            found.add(key)
            try:
                of_name = requires(requirement.name) or []
            except PackageNotFoundError:  # an extra's package, which is not installed here
                continue
            parsed = map(Requirement, of_name)
            applying = [str(r) for r in parsed if r.marker is None or r.marker.evaluate({"extra": extra})]
            needed([text.split(";")[0] for text in applying], found)


def test_every_package_is_there_once_with_an_exact_version_and_no_address() -> None:
    pinned = [re.fullmatch(r"([a-z0-9-]+)==[0-9][^ ;@/]*", line) for line in LINES]
    assert all(pinned), [line for line, match in zip(LINES, pinned, strict=True) if not match]
    names = [match.group(1) for match in pinned if match]
    assert len(set(names)) == len(names)


def test_all_that_running_testing_and_checking_need_is_pinned() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    tables = project["project"]["optional-dependencies"] | project["dependency-groups"]
    declared = [entry for entries in tables.values() for entry in entries if isinstance(entry, str)]
    found: set[str] = set()
    needed([*project["project"]["dependencies"], *declared], found)
    names = {key.partition("[")[0] for key in found}
    assert {"torch", "ray", "scipy", "pytest", "mypy", "wandb", "uv"} <= names
    assert names - {line.partition("==")[0] for line in LINES} == set()
