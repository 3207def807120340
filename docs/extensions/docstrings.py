"""Parses Google-style docstrings, merged over base classes, and the texts below type aliases."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from typing import Any

_SECTION = re.compile(r"^(Attributes|Args|Returns|Yields|Raises|Example|Examples):\s*$")
_ENTRY = re.compile(r"^ {4}(\*{0,2}\w+)(?: \([^)]*\))?: ?(.*)$")


@dataclass
class Docstring:
    """A docstring in parts.

    Attributes:
        summary: Its first paragraph.
        body: All other paragraphs outside of sections.
        described: Descriptions of attributes or arguments, by name.
        raised: Descriptions of errors, by name.
    """

    summary: str = ""
    body: str = ""
    described: dict[str, str] = field(default_factory=dict)
    raised: dict[str, str] = field(default_factory=dict)


def parse(text: str | None) -> Docstring:
    """Parses a docstring; unindented text after a section belongs to the body."""
    if not text:
        return Docstring()
    found, prose, section = Docstring(), [], ""
    entry = ""
    for line in inspect.cleandoc(text).splitlines():
        if title := _SECTION.match(line):
            section = title[1]
        elif section and line and not line.startswith(" "):
            section = ""
        if not section:
            prose.append(line)
        elif section in ("Attributes", "Args", "Raises"):
            entries = found.raised if section == "Raises" else found.described
            if (begun := _ENTRY.match(line)) and not line.startswith(" " * 5):
                entry = begun[1].lstrip("*")
                entries[entry] = begun[2]
            elif line.startswith(" " * 4):
                entries[entry] += "\n" + line
            elif not line and entry in entries:
                entries[entry] += "\n"
    for entries in (found.described, found.raised):
        for name, lines in entries.items():
            first, _, rest = lines.partition("\n")
            entries[name] = f"{first}\n{dedent(rest)}".strip()
    found.summary, _, body = "\n".join(prose).strip().partition("\n\n")
    found.body = body.strip("\n")
    return found


def of(target: Any) -> Docstring:
    """Returns the own docstring of a class, function or module, not an inherited one."""
    own = target.__dict__.get("__doc__") if inspect.isclass(target) else target.__doc__
    return parse(own)


def described(target: Any) -> dict[str, str]:
    """Returns the descriptions of the attributes of a class, including its bases, or of the arguments of a function."""
    if not inspect.isclass(target):
        return of(target).described
    found: dict[str, str] = {}
    for kind in reversed(target.__mro__):
        found |= {name: text for name, text in _of_class(kind).items() if not (name in found and _only_refers(text))}
    return found


def alias_texts(kind: type, name: str) -> list[str]:
    """Returns the texts below the type aliases in the annotation of a field, such as `train: Train`."""
    for base in kind.__mro__:
        annotation = inspect.get_annotations(base).get(name)
        if isinstance(annotation, str):
            names = re.findall(r"\b[A-Z]\w+", annotation)
            texts = (_alias_text(base.__module__, alias) for alias in names)
            return [text for text in texts if text]
    return []


def citation(target: Any) -> str:
    """Returns the papers that the docstring of a class's or function's module cites for it.

    That is everything after the first paragraph, except paragraphs that begin with the name of another class there.
    """
    module = import_module(target.__module__)
    others = {name for name, value in vars(module).items() if inspect.isclass(value)} - {target.__name__}
    paragraphs = parse(module.__doc__).body.split("\n\n")
    return "\n\n".join(text for text in paragraphs if re.split(r"\W", text, maxsplit=1)[0] not in others)


def text_below(module: str, name: str) -> str:
    """Returns the text below the assignment of a name in a module; empty if there is none."""
    return _alias_text(import_module(module).__name__, name)


def _only_refers(text: str) -> bool:
    return text.startswith("See `") and len(text) < 60


@cache
def _of_class(kind: type) -> dict[str, str]:
    """Collects Attributes, Args of the class or its constructor, and texts below fields."""
    found = dict(of(kind).described) if kind is not object else {}
    if kind.__module__.startswith("rayfl"):
        if callable(constructor := kind.__dict__.get("__init__")):
            found |= parse(constructor.__doc__).described
        found |= _texts_below(ast.parse(dedent(inspect.getsource(kind))).body[0])
    return found


@cache
def _alias_text(module: str, alias: str) -> str:
    """Returns the text below the definition `alias = ...`; empty if there is none."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rayfl"):
            for imported in node.names:
                if (imported.asname or imported.name) == alias:
                    import_module(node.module)
                    return _alias_text(node.module, imported.name)
    return _texts_below(tree).get(alias, "")


def _texts_below(tree: ast.AST) -> dict[str, str]:
    """Returns the texts below assignments and annotations, by name."""
    body: list[ast.stmt] = getattr(tree, "body", [])
    found = {}
    for before, after in pairwise(body):
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            continue
        targets = before.targets if isinstance(before, ast.Assign) else [getattr(before, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(after.value.value, str):
                found[target.id] = inspect.cleandoc(after.value.value)
    return found
