"""The generated reference of scenario keys, without building the documentation."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from rayfl.config.local import Local
from rayfl.config.phase import config_of
from rayfl.config.scenario import Scenario
from rayfl.engine.schedules.schedule import schedules
from rayfl.studies.grid.schema import Grid

DOCS = Path(__file__).parents[2] / "docs"


def keys_of_files() -> set[str]:
    """The keys of scenarios, of their phases by schedule, and of the sections beside them."""
    found = set(Scenario.model_fields) | {f"grid.{name}" for name in Grid.model_fields}
    for section, field in Scenario.model_fields.items():
        kind = field.annotation
        if (
            isinstance(kind, type)
            and issubclass(kind, BaseModel)
            and "name" not in vars(kind).get("__annotations__", {})
        ):
            found |= {f"{section}.{name}" for name in kind.model_fields}
    for schedule in schedules:
        found |= {f"phases.N.{name}" for name in config_of(schedule).model_fields}
    found |= {f"phases.N.local.{name}" for name in Local.model_fields}
    return found


def test_every_key_is_described_on_a_page() -> None:
    from extensions import scenario_keys

    described = {path for section in scenario_keys.PAGES for path in scenario_keys.paths(section)}
    assert {"phases.N.local.lr", "phases.N.local.dp.delta", "participation.dropout.uniform"} <= described
    assert {"evaluation.every", "evaluation.personalize.train", "phases.N.server_training.lr"} <= described
    assert keys_of_files() <= described


def test_no_path_is_described_twice() -> None:
    from extensions import scenario_keys

    paths = [path for section in scenario_keys.PAGES for path in scenario_keys.paths(section)]
    assert sorted(paths) == sorted(set(paths))


def test_every_section_is_on_the_page_that_others_link_to() -> None:
    from extensions import scenario_keys

    for path, page in scenario_keys.PAGES.values():
        text = (DOCS / "reference" / "scenario" / f"{page}.md").read_text(encoding="utf-8")
        (named,) = [line.split()[1:] for line in text.splitlines() if line.startswith("```{scenario-keys}")]
        assert (path or page) in named


def test_a_key_has_its_type_range_and_default_in_words() -> None:
    from extensions.options import of_fields

    from rayfl.config.local import Local

    options = {option.name: option for option in of_fields(Local)}
    assert options["momentum"].kind == "number at least 0 and below 1; default: `0.0`"
    assert options["batch_size"].kind == 'whole number above 0 or `"full"`; default: `32`'
    assert options["clip_norm"].kind == "number above 0; default: not set"


def test_prose_becomes_markdown_in_which_characters_stand_for_themselves() -> None:
    from extensions.prose import as_markdown

    assert as_markdown("w <- w + a * b_i, `a_b * c`") == r"w \<- w + a \* b\_i, `a_b * c`"


def test_a_type_is_not_explained_twice() -> None:
    from extensions.options import of_fields

    from rayfl.config.base_phase import BasePhase
    from rayfl.config.local import Local

    (train,) = (option for option in of_fields(BasePhase) if option.name == "train")
    assert train.markdown.count("Which part of the network trains") == 1
    assert "named" in train.markdown
    (steps,) = (option for option in of_fields(Local) if option.name == "steps")
    assert "drawn again for every client and round" in steps.markdown


def test_types_that_differ_between_schedules_name_them() -> None:
    from extensions import scenario_keys
    from extensions.options import Option

    def merged(*types: str) -> str:
        options = [Option("a", kind, None, "") for kind in types]
        return scenario_keys._merged(dict(zip(("one", "two"), options, strict=True))).type

    assert merged("text", "number") == "text with `one`; number with `two`"
    assert merged("text", "text") == "text"


def test_a_key_that_means_something_else_with_some_schedules_names_them() -> None:
    from extensions import scenario_keys

    from rayfl.config.base_phase import BasePhase

    keys = {key.paths[0]: key for group in scenario_keys.groups(BasePhase) for key in group.keys}
    common, *others = keys["phases.N.cohort"].option.text.split("\n\nWith schedule ")
    assert "Candidates" not in common
    assert any("`buffered`" in other and "Candidates" in other for other in others)
