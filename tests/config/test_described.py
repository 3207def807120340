"""Every scenario key is described in the docstring of its section, from which the reference is generated."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from rayfl.config.local import Local
from rayfl.config.phase import ParallelPhase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named, Section, descriptions, own_descriptions
from rayfl.config.validation import annotation_at


def sections() -> list[type[BaseModel]]:
    for package in ("rayfl.config", "rayfl.studies.grid"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name != "__main__":
                importlib.import_module(f"{package}.{module.name}")
    found = {kind for kind in derived(Section) if kind.__module__.startswith(("rayfl.config.", "rayfl.studies.grid."))}
    return sorted([*found, Named], key=lambda kind: kind.__qualname__)


def derived(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in kind.__subclasses__():
        yield child
        yield from derived(child)


SECTIONS = sections()
EVERY = pytest.mark.parametrize("section", SECTIONS, ids=lambda kind: kind.__qualname__)


def test_all_sections_of_scenarios_and_grids_are_found() -> None:
    names = {section.__name__ for section in SECTIONS}
    assert names >= {"Scenario", "Grid", "Data", "Local", "SampleDP", "RelayPhase", "Uniform", "Traced", "Checkpoint"}


@EVERY
def test_every_key_is_described(section: type[BaseModel]) -> None:
    found = descriptions(section)
    assert found.keys() == section.model_fields.keys()
    for key, text in found.items():
        assert len(text.split()) >= 3, f"{key}: {text}"
        assert text.endswith("."), f"{key}: {text}"
        assert not text.startswith("See "), f"{key}: {text}"


@EVERY
def test_no_description_is_of_a_key_that_does_not_exist(section: type[BaseModel]) -> None:
    assert own_descriptions(section).keys() <= section.model_fields.keys()


@EVERY
def test_every_optional_key_says_what_its_default_means(section: type[BaseModel]) -> None:
    for key, text in descriptions(section).items():
        if not section.model_fields[key].is_required():
            assert "default" in text.lower() or section.model_fields[key].annotation in SECTIONS, f"{key}: {text}"


@EVERY
def test_the_key_paths_in_a_description_are_keys(section: type[BaseModel]) -> None:
    for text in descriptions(section).values():
        for path in re.findall(r"`((?:[a-z_N]+\.)+[a-z_]+)", text):
            first, *rest = path.split(".")
            if first in Scenario.model_fields:
                annotation_at(Scenario, (first, *(0 if part == "N" else part for part in rest)))
            elif first == "local":
                annotation_at(Local, tuple(rest))


def test_a_description_of_several_lines_is_joined() -> None:
    text = descriptions(Local)["dp"]
    assert text == (
        "Trains with DP-SGD, for example-level privacy (Abadi et al., CCS 2016). By default without privacy."
    )
    assert "\n" not in descriptions(Local)["epochs"]
    assert "  " not in descriptions(Local)["epochs"]


def test_a_key_is_described_by_the_nearest_class_that_describes_it() -> None:
    base, own = descriptions(ParallelPhase.__mro__[1]), descriptions(ParallelPhase)
    assert own["rounds"] == base["rounds"]
    for section in SECTIONS:
        assert descriptions(section).items() >= own_descriptions(section).items()
