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
        return parsed(self, type(self).text(words))


def parsed(where: SphinxDirective, text: str) -> list[nodes.Node]:
    """Parses text as a part of the page, headings included.

    MyST appends sections to the page while it parses them, ahead of the paragraphs that a directive returns; they are
    taken back, so that everything is returned in the order of the text.
    """
    document = where.state.document
    before = {id(section) for section in document.findall(nodes.section)}
    container = nodes.section()
    container.document = document
    where.state.nested_parse(StringList(text.splitlines(), where.get_location()), 0, container, match_titles=True)
    new = [section for section in document.findall(nodes.section) if id(section) not in before]
    outermost = [section for section in new if section.parent not in new]
    for section in outermost:
        section.parent.remove(section)
    return [*container.children, *outermost]


def directive(text: Callable[[list[str]], str], depends: Callable[[list[str]], Iterable[str]] | None = None) -> type:
    """Makes a directive of a function.

    Args:
        text: From the words of the directive's argument to the content.
        depends: From the same words to the files whose change has the page built again.
    """
    found = {"text": staticmethod(text), **({"depends": staticmethod(depends)} if depends else {})}
    return type("GeneratedBy", (Generated,), found)
