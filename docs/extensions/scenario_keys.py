"""Every key of scenario and grid files, from the models that validate them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union, get_args, get_origin

from extensions import docstrings, prose
from extensions.options import Option, of_fields
from rayfl.config.base_phase import BasePhase
from rayfl.config.data import Data
from rayfl.config.execution import Checkpoint, Evaluation, Numerics, Resources
from rayfl.config.local import Local
from rayfl.config.participation import Devices
from rayfl.config.phase import config_of
from rayfl.config.privacy import ClientDP, SampleDP
from rayfl.config.registry import kinds
from rayfl.config.scenario import Scenario, Start
from rayfl.config.section import Named, Section
from rayfl.engine.schedules.schedule import schedules
from rayfl.studies.grid.schema import Grid

PAGES: dict[type[Section], tuple[str, str]] = {
    Scenario: ("", "scenario"),
    Data: ("data", "data"),
    BasePhase: ("phases.N", "phases"),
    Local: ("phases.N.local", "local"),
    SampleDP: ("phases.N.local.dp", "privacy"),
    ClientDP: ("phases.N.dp", "privacy"),
    Devices: ("participation", "participation"),
    Start: ("start", "start"),
    Evaluation: ("evaluation", "evaluation"),
    Numerics: ("numerics", "machine"),
    Resources: ("resources", "machine"),
    Checkpoint: ("checkpoint", "machine"),
    Grid: ("grid", "grid"),
}
"""The sections with their own place: the path of their keys, and their page."""

MOST_PATHS = 2
"""Number of paths of one key that are shown; with more, the part in which they differ is shown as KEY."""


@dataclass(frozen=True)
class Key:
    """A key that is described once, even if it has several paths.

    Attributes:
        paths: All paths, `phases.N.local.lr` first.
        option: Its type, default and description.
        schedules: The schedules whose phases have it; empty if all have it, or if it is not a key of a phase.
    """

    paths: tuple[str, ...]
    option: Option
    schedules: tuple[str, ...] = ()


@dataclass
class Group:
    """Keys of one section.

    Attributes:
        title: Title of the section; empty for the main section of a page.
        text: Text of its docstring, as Markdown.
        keys: Its keys, in the order of their definition.
    """

    title: str
    text: str
    keys: list[Key] = field(default_factory=list)


def groups(section: type[Section]) -> list[Group]:
    """Returns the keys of a section, then those of the tables in it, each once."""
    if section is BasePhase:
        return _of_phases()
    prefix, _ = PAGES[section]
    return _with_inner("", section, [prefix, *_elsewhere(section)])


def paths(section: type[Section]) -> set[str]:
    """Returns the paths of all keys that `groups` describes."""
    return {path for group in groups(section) for key in group.keys for path in key.paths}


def undescribed() -> list[str]:
    """Returns the keys that no docstring describes."""
    return [
        key.paths[0]
        for section in PAGES
        for group in groups(section)
        for key in group.keys
        if not key.option.text and not key.option.notes
    ]


def as_markdown(section: type[Section], level: int = 2) -> str:
    """Returns the groups of a section as Markdown."""
    found = groups(section)
    titles = ["", *(group.title for group in found)]
    return "\n\n".join(
        _group(group, level, group.title != before) for before, group in zip(titles, found, strict=False)
    )


def _with_inner(title: str, section: type[Section], prefixes: list[str], leave_out: Iterable[str] = ()) -> list[Group]:
    """Returns the keys of a section, then the groups of the tables that some of its keys may hold."""
    own = Group(title, _text(section))
    inner: dict[type[Section], list[str]] = {}
    for option in of_fields(section, leave_out):
        places = tuple(f"{prefix}.{option.name}".lstrip(".") for prefix in prefixes)
        own.keys.append(Key(places, option))
        for kind in _sections(section.model_fields[option.name].annotation):
            inner.setdefault(kind, []).extend(places)
    found = [own]
    for kind, below in inner.items():
        base = next((base for base in PAGES if issubclass(kind, base)), None)
        if base is None:
            found += _with_inner(_heading(below), kind, below)
        elif kind is not base and (more := set(kind.model_fields) - set(base.model_fields)):
            extended = _with_inner(_heading(below), kind, below, set(kind.model_fields) - more)
            extended[0].text += f"\n\nIts other keys are those of {{doc}}`{PAGES[base][1]}`."
            found += extended
    return found


def _elsewhere(section: type[Section]) -> list[str]:
    """Returns other paths at which a scenario has the keys of a section, such as `phases.N.server_training`."""
    found = []
    for holder, (prefix, _) in PAGES.items():
        models: list[type[Section]] = [holder] if holder is not BasePhase else [config_of(name) for name in schedules]
        for model in models:
            for name, info in model.model_fields.items():
                path = f"{prefix}.{name}".lstrip(".")
                if path != PAGES[section][0] and any(issubclass(kind, section) for kind in _sections(info.annotation)):
                    found.append(path)
    return list(dict.fromkeys(path for path in found if section not in (BasePhase, SampleDP, ClientDP)))


def _of_phases() -> list[Group]:
    """Returns the keys of phases, each once: those of all schedules, then those of only some."""
    configs = {name: config_of(name) for name in schedules}
    options: dict[str, dict[str, Option]] = {}
    for name, config in configs.items():
        for option in of_fields(config):
            options.setdefault(option.name, {})[name] = option
    common = Group("", _text(BasePhase))
    some = Group("Keys of some schedules", "")
    sections: dict[type[Section], list[str]] = {}
    for name, by_schedule in options.items():
        path = f"phases.N.{name}"
        in_all = len(by_schedule) == len(configs)
        (common if in_all else some).keys.append(
            Key((path,), _merged(by_schedule), () if in_all else tuple(by_schedule))
        )
        for config in configs.values():
            for kind in _sections(config.model_fields[name].annotation) if name in config.model_fields else ():
                sections.setdefault(kind, [])
                if path not in sections[kind]:
                    sections[kind].append(path)
    found = [common, some]
    for kind, places in sections.items():
        if not any(issubclass(kind, base) for base in PAGES):
            found += _with_inner(_heading(places), kind, places)
    return found


def _merged(by_schedule: dict[str, Option]) -> Option:
    """Merges the options that several schedules have under one name; differing texts and defaults name the schedule."""
    first = next(iter(by_schedule.values()))
    text = _merged_text({name: option.text for name, option in by_schedule.items()})
    defaults = {name: option.default or "required" for name, option in by_schedule.items()}
    default = first.default
    if len(set(defaults.values())) > 1 and first.name != "schedule":
        default = "; ".join(f"{said} with `{name}`" for name, said in defaults.items())
    if first.name == "schedule":
        names = ", ".join(f'`"{name}"`' for name in by_schedule)
        return Option(first.name, f"{names}, or the import path of your own", '`"parallel"`', text, first.notes)
    kind = first.type
    if len({option.type for option in by_schedule.values()}) > 1:
        kind = "; ".join(f"{option.type} with `{name}`" for name, option in by_schedule.items())
    return Option(first.name, kind, default, text, first.notes)


def _merged_text(by_schedule: Mapping[str, str]) -> str:
    """Returns the text of the first schedule, then additions and changes of others, with the names of the schedules."""
    texts = {name: _flowing(text) for name, text in by_schedule.items() if not text.startswith("See `")}
    if not texts:
        return next(iter(by_schedule.values()))
    common = next(iter(texts.values()))
    others: dict[str, list[str]] = {}
    for name, text in texts.items():
        if not all(sentence in common for sentence in text.rstrip(".").split(". ")):
            others.setdefault(text, []).append(name)
    said = [f"With schedule {' or '.join(f'`{name}`' for name in names)}: {text}" for text, names in others.items()]
    return "\n\n".join([common, *said])


def _flowing(text: str) -> str:
    """Returns a text in one line, with the name of the schedule instead of its class."""
    text = re.sub(r"\s+", " ", text).replace("; see `ParallelPhase`", "")
    return text.replace("`ParallelPhase`", "schedule `parallel`")


def _sections(annotation: Any) -> list[type[Section]]:
    """Returns the tables that a value may be or contain."""
    found: list[type[Section]] = []
    for kind in kinds(annotation):
        if get_origin(kind) is Annotated or get_origin(kind) in (tuple, dict, list, Union):
            for inner in get_args(kind):
                found += _sections(inner)
        elif isinstance(kind, type) and issubclass(kind, Section) and not issubclass(kind, Named | BasePhase):
            found.append(kind)
    return list(dict.fromkeys(found))


def _text(section: type[Section]) -> str:
    said = docstrings.of(section)
    return prose.as_markdown("\n\n".join(part for part in (said.summary, said.body) if part))


def _heading(places: list[str]) -> str:
    return (
        " and ".join(f"`{path}`" for path in places) if len(places) <= MOST_PATHS else f"Values of `{_shown(places)}`"
    )


def _shown(places: Iterable[str]) -> str:
    """Returns the paths as one, with KEY for the part in which many differ."""
    parts = [path.split(".") for path in places]
    if len(parts) <= MOST_PATHS or len({len(part) for part in parts}) > 1:
        return ".".join(parts[0])
    return ".".join(names[0] if len(set(names)) == 1 else "KEY" for names in zip(*parts, strict=True))


def _group(group: Group, level: int, is_titled: bool) -> str:
    parts = [f"{'#' * level} {group.title}" if group.title and is_titled else "", group.text]
    return "\n\n".join([*(part for part in parts if part), *(_key(key) for key in group.keys)])


def _key(key: Key) -> str:
    shown, *others = key.paths
    if len(key.paths) > MOST_PATHS:
        shown, others = _shown(key.paths), list(key.paths)
    lines = [f"::::{{key}} {shown}"]
    if others:
        lines.append(f":also: {' '.join(path for path in others if path != shown)}")
    lines += ["", key.option.kind]
    if key.schedules:
        lines += ["", f"With schedule {', '.join(f'`{name}`' for name in key.schedules)}."]
    return "\n".join([*lines, "", key.option.markdown, "::::"])


def walk() -> Iterator[tuple[type[Section], Group, Key]]:
    """Yields all keys of all pages."""
    for section in PAGES:
        for group in groups(section):
            for key in group.keys:
                yield section, group, key
