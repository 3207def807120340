"""The Python API: every public name of a package, through autodoc. Docstrings are prose with single backticks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from extensions import docstrings, prose
from extensions.generated import directive
from rayfl.lazy_names import homes

PACKAGES = ("", "algorithms", "callbacks", "data", "local", "models", "schedules", "tasks")
"""The packages below `rayfl` that users import from."""

PYDANTIC = {"model_config", "model_post_init"}
"""Members that pydantic adds to a class."""


def public(package: str) -> Iterator[tuple[str, Any]]:
    """Yields the public names of a package in alphabetical order, with their objects."""
    module = import_module(package)
    for name in sorted(module.__all__, key=str.lower):
        yield name, getattr(module, name)


def as_restructured(words: list[str]) -> str:
    """Returns autodoc directives for all names of a package."""
    (package,) = words
    return "\n\n".join(_directive(package, name, value) for name, value in public(package))


def as_markdown(words: list[str]) -> str:
    """Returns the same, embedded in Markdown."""
    return f"``````{{eval-rst}}\n{as_restructured(words)}\n``````"


def _is_elsewhere(name: str) -> bool:
    """Whether a package below `rayfl` also has the name, so links should point there."""
    return any(name in import_module(f"rayfl.{package}").__all__ for package in PACKAGES if package)


def _directive(package: str, name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f".. autoexception:: {package}.{name}\n   :show-inheritance:"
    if inspect.isclass(value):
        left_out = ", ".join(sorted(PYDANTIC))
        options = [":members:", ":show-inheritance:", f":exclude-members: {left_out}"]
        if package == "rayfl" and _is_elsewhere(name):
            options.append(":no-index:")
        return "\n   ".join([f".. autoclass:: {package}.{name}", *options])
    if inspect.isfunction(value):
        return f".. autofunction:: {package}.{name}"
    text = docstrings.text_below(homes(package).get(name, package), name)
    lines = [f".. py:data:: {package}.{name}", "", *(f"   {line}" for line in marked(text.splitlines()))]
    return "\n".join(lines)


def marked(lines: list[str]) -> list[str]:
    """Converts docstring lines to reStructuredText; examples stay unchanged."""
    found: list[str] = []
    in_example = False
    for line in lines:
        in_example = bool(line.strip()) and (in_example or ">>>" in line)
        found += [line] if in_example else prose.as_restructured([line])
    return found


def _process_docstring(app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    if name.startswith("rayfl"):
        lines[:] = marked(lines)


def _files(words: list[str]) -> list[str]:
    """Returns the files that define the names."""
    loaded = {*homes(words[0]).values()} & sys.modules.keys()
    return sorted(str(Path(str(sys.modules[home].__file__))) for home in loaded)


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{python-api} rayfl.algorithms`."""
    app.add_directive("python-api", directive(as_markdown, _files))
    app.connect("autodoc-process-docstring", _process_docstring, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
