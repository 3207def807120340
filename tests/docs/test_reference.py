"""The generated reference of everything but scenario keys, without building the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import rayfl
from rayfl.algorithms import algorithms
from rayfl.algorithms.construction import PRESETS
from rayfl.cli.commands import COMMANDS, GROUPS
from rayfl.config.registry import Registry
from rayfl.engine.columns import (
    CLIENTS,
    CLIENTS_MEANINGS,
    METRICS,
    METRICS_MEANINGS,
    OWNER,
    REPORTED_MEANINGS,
    simulated_columns,
)
from rayfl.engine.totals import Simulated
from tests.test_public_names import PUBLIC

PACKAGE = Path(rayfl.__file__).parent
DOCS = PACKAGE.parent / "docs"
REFERENCE = DOCS / "reference"


def registries() -> Iterator[Registry]:
    """Every registry that a module of rayfl makes."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not (isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Registry(")):
                continue
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            yield getattr(import_module(module), ast.unparse(node.targets[0]))


def directives(folder: Path, name: str) -> dict[str, str]:
    """The pages of a folder that a directive fills, by its argument."""
    found: dict[str, str] = {}
    for path in folder.glob("*.md"):
        for argument in re.findall(rf"^```{{{name}}} (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            for word in argument.split():
                assert word not in found, f"{path.name} and {found[word]} both show {word}"
                found[word] = path.stem
    return found


def listed(page: Path) -> list[str]:
    """The entries of a page's toctree."""
    text = page.read_text(encoding="utf-8")
    return [
        line
        for block in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL)
        for line in block.split()
        if line[0] not in ":0123456789"
    ]


def test_every_registry_is_a_kind_of_component_or_has_pages_of_its_own() -> None:
    from extensions.components import KINDS

    known = {id(kind.registry) for kind in KINDS.values()} | {id(algorithms)}
    found = list(registries())
    assert len(found) >= 15
    assert {registry.kind for registry in found if id(registry) not in known} == set()


def test_every_kind_of_component_is_on_one_page_that_the_index_lists() -> None:
    from extensions.components import KINDS

    pages = directives(REFERENCE / "components", "components")
    assert set(pages) == set(KINDS)
    assert set(pages.values()) == set(listed(REFERENCE / "components" / "index.md"))


def test_every_component_has_a_heading_and_its_options_a_description() -> None:
    from extensions import components

    for kind, known in components.KINDS.items():
        headings = re.findall(r"^## `(.+)`$", components.as_markdown([kind]), re.MULTILINE)
        assert headings == list(known.registry), kind
    assert components.undescribed() == []


def test_a_network_is_described_by_what_is_built() -> None:
    from extensions.network_facts import network_facts

    from rayfl.models.cnn import LeNet5

    # 5x5 convolutions of 3 and 6 channels, then dense layers of 400, 120 and 84 inputs, each with its bias
    count = 76 * 6 + 151 * 16 + 401 * 120 + 121 * 84 + 85 * 10
    (facts,) = network_facts("lenet5", LeNet5)
    assert f"{count:_}".replace("_", "\N{NARROW NO-BREAK SPACE}") in facts
    assert "`conv1`, `conv2`, `fc1`, `fc2`, `fc3`" in facts


def test_a_source_says_which_files_it_looks_for() -> None:
    from extensions.source_facts import source_facts

    from rayfl.data import data_sources

    (facts,) = source_facts("femnist", data_sources.resolve("femnist"))
    assert "looked in DATA/femnist for femnist.parquet" in facts


def test_every_algorithm_has_a_page_with_a_formula_that_the_index_lists() -> None:
    folder = REFERENCE / "algorithms"
    pages = directives(folder, "algorithm")
    assert {name: name for name in algorithms} == pages
    assert set(listed(folder / "index.md")) == set(algorithms)
    for name in algorithms:
        assert (folder / f"{name}.md").read_text(encoding="utf-8").count("$$") >= 2, name


def test_the_formula_of_an_algorithm_is_only_the_one_written_by_hand() -> None:
    from extensions import algorithm_pages

    for name in algorithms:
        assert not any(re.match(r"(\w+: )?\w \\<- ", text) for text in algorithm_pages._text(name)), name
    assert algorithm_pages._text("scaffold")[0].startswith("The sum of the dc")
    assert algorithm_pages._text("fedprox")[0].startswith("Adds mu / 2")


def test_every_algorithm_page_has_a_learning_curve_or_says_why_it_has_none() -> None:
    from extensions import algorithm_curves

    from tools.algorithm_curves.settings import NO_CURVE

    for name in algorithms:
        text = algorithm_curves.as_markdown(name)
        pictures = re.findall(r"^```{image} /(figures/algorithms/.+)$", text, re.MULTILINE)
        assert bool(pictures) != (name in NO_CURVE), name
        for place in (*pictures, *re.findall(r"{repo}`docs/(.+)`", text)):
            assert (DOCS / place).exists(), place


def test_an_algorithm_works_with_what_rayfl_accepts_and_gives_the_reason_otherwise() -> None:
    from extensions.algorithm_facts import support

    assert support("fedprox", "Relay (sequential training)") == ({}, "")
    assert support("fedavg", "Client-level DP")[0] == {"weighting": "uniform"}
    assert support("fedmeta", "Example-level DP")[0] == {"order": "first"}
    chosen, reason = support("scaffold", "Relay (sequential training)")
    assert chosen is None
    assert "its control variates need a server" in reason


def test_a_preset_is_shown_in_the_general_form() -> None:
    from extensions.algorithm_facts import preset_in_words, presets_of

    assert preset_in_words("fedprox") == '{ name = "fedavg", penalties = ["proximal"] }'
    assert preset_in_words("fedadam") == '{ name = "fedavg", server_optimizer = "adam" }'
    assert preset_in_words("scaffold") == ""
    assert set(presets_of("fedavg")) == set(PRESETS)


def test_every_command_and_every_option_is_shown() -> None:
    from extensions import command_lines

    text = command_lines.as_markdown([])
    for name, command in COMMANDS.items():
        section = text.partition(f"### `rayfl {name}`\n")[2].partition("\n### ")[0]
        options = [option for action in command_lines.shown(command.parser()) for option in action.option_strings]
        for option in options:
            assert re.search(rf"^`.*{option}\b", section, re.MULTILINE), f"{name} {option}"
    assert "`--data-dir DIR`" in text
    for title in GROUPS:
        assert f"## {title[0].upper()}{title[1:]}\n" in text


def test_every_public_name_is_on_the_page_of_its_package() -> None:
    from extensions import python_api

    assert directives(REFERENCE / "python", "python-api") == {name: name.removeprefix("rayfl.") for name in PUBLIC}
    assert set(listed(REFERENCE / "python" / "index.md")) == {name.removeprefix("rayfl.") for name in PUBLIC}
    for package, names in PUBLIC.items():
        text = python_api.as_restructured([package])
        shown = re.findall(rf"^\.\. (?:auto|py:)\w+:: {package}\.(\w+)$", text, re.MULTILINE)
        assert sorted(shown) == sorted(names.split())


def test_examples_in_docstrings_stay_as_they_are_and_prose_is_escaped() -> None:
    from extensions.python_api import marked

    lines = ["a *b* of `code`", "", ">>> f(*x)", "array([*])", "", "c | d"]
    assert marked(lines) == [r"a \*b\* of ``code``", "", ">>> f(*x)", "array([*])", "", r"c \| d"]


def test_every_column_of_the_records_has_a_meaning_in_their_order() -> None:
    simulated = list(simulated_columns(Simulated(joules=1.0, transfer=1.0, training=1.0)))
    names = [meaning.name for meaning in METRICS_MEANINGS if "<" not in meaning.name]
    privacy = ["epsilon", "client_epsilon"]
    assert [name for name in names if name not in privacy] == [*METRICS.names, *simulated]
    fixed = [meaning.name for meaning in CLIENTS_MEANINGS if "<" not in meaning.name]
    assert fixed == [*CLIENTS.names, OWNER.name, "epsilon"]


def test_every_scalar_that_rayfl_reports_has_a_meaning() -> None:
    reported = {"left_out", "mean_staleness", "max_staleness"}  # of schedules, which do not call `report`
    for path in [*(PACKAGE / "algorithms").rglob("*.py"), *(PACKAGE / "engine").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "report":
                reported |= {str(keyword.arg) for keyword in node.keywords if keyword.arg}
    reported.add("clip_norm")  # of rayfl.privacy
    assert {meaning.name for meaning in REPORTED_MEANINGS} == reported


def test_links_to_the_repository_name_what_is_there() -> None:
    found = 0
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"{repo}`([^`]+)`", page.read_text(encoding="utf-8")):
            path = re.sub(r"^.*<(.+)>$", r"\1", target)
            assert (PACKAGE.parent / path).exists(), f"{page.name}: {target}"
            found += 1
    assert found
