"""Directives whose content is Markdown or reStructuredText that a function makes from the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    """Parses what `text` returns for its argument as a part of the page, in the page's own markup.

    Attributes:
        text: From the words of the argument to the content.
        depends: The files whose change has the page built again.
    """

    optional_arguments = 1
    final_argument_whitespace = True

    text: ClassVar[Callable[[list[str]], str]]
    depends: ClassVar[Callable[[list[str]], Iterable[str]]] = lambda _: ()

    def run(self) -> list[nodes.Node]:
        """Parses the content."""
        words = self.arguments[0].split() if self.arguments else []
        for file in type(self).depends(words):
            self.env.note_dependency(file)
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(type(self).text(words).splitlines(), self.get_location())
        self.state.nested_parse(lines, 0, container, match_titles=True)
        return container.children


def directive(text: Callable[[list[str]], str], depends: Callable[[list[str]], Iterable[str]] | None = None) -> type:
    """Makes a directive of a function.

    Args:
        text: From the words of the directive's argument to the content.
        depends: From the same words to the files whose change has the page built again.
    """
    found = {"text": staticmethod(text), **({"depends": staticmethod(depends)} if depends else {})}
    return type("GeneratedBy", (Generated,), found)
