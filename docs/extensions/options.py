"""The options of a component: fields of a pydantic model, or arguments of a callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from extensions import docstrings, prose
from extensions.types_in_words import default_in_words, in_words


@dataclass(frozen=True)
class Option:
    """A key with everything that a reader needs to set it.

    Attributes:
        name: The key.
        type: Type in words, as Markdown.
        default: Default in words, as Markdown; None if the key is required.
        text: Description from the docstring; empty if there is none.
        notes: Texts of the type aliases in its annotation, except those that its description begins with.
    """

    name: str
    type: str
    default: str | None
    text: str
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Type and default in one line of Markdown."""
        return f"{self.type}; " + ("required" if self.default is None else f"default: {self.default}")

    @property
    def markdown(self) -> str:
        """Its description, in paragraphs."""
        return "\n\n".join(prose.as_markdown(text) for text in (self.text, *self.notes) if text)


def of_fields(kind: type[BaseModel], leave_out: Iterable[str] = ()) -> list[Option]:
    """Returns the fields of a pydantic model, in the order of their definition."""
    texts, left_out = docstrings.described(kind), set(leave_out)
    return [
        Option(
            name,
            in_words(field.annotation, field.metadata),
            _default(field),
            texts.get(name, ""),
            tuple(note for note in docstrings.alias_texts(kind, name) if not _repeats(texts.get(name, ""), note)),
        )
        for name, field in kind.model_fields.items()
        if name not in left_out
    ]


def of_arguments(target: Callable[..., Any], given: Iterable[str] = ()) -> list[Option]:
    """Returns the arguments of a callable, except those that rayfl provides and `**options`."""
    texts, provided = docstrings.described(target), set(given)
    signature = inspect.signature(target, eval_str=True)
    return [
        Option(
            name,
            in_words(parameter.annotation),
            None if parameter.default is parameter.empty else default_in_words(parameter.default),
            texts.get(name, ""),
        )
        for name, parameter in signature.parameters.items()
        if name not in provided and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def of(target: Any, given: Iterable[str] = ()) -> list[Option]:
    """Returns the options of a registered object."""
    if inspect.isclass(target) and issubclass(target, BaseModel):
        return of_fields(target, {"name", *given})
    return of_arguments(target, given)


def as_list(options: Iterable[Option]) -> str:
    """Formats options as a definition list, which is easier to read on narrow pages than a table."""
    entries = []
    for option in options:
        head = (
            f"`{option.name}`\n: *{option.kind}*"
            if option.kind.count("`") == 0
            else f"`{option.name}`\n: {option.kind}"
        )
        body = "\n\n".join(part.replace("\n", "\n  ") for part in option.markdown.split("\n\n") if part)
        entries.append(head + "".join(f"\n\n  {part}" for part in body.split("\n\n") if part))
    return "\n\n".join(entries)


def _repeats(text: str, note: str) -> bool:
    """Whether a description begins as the text of a type does, and then lists the values itself."""
    return text.startswith(note.partition("\n\n")[0].rstrip(".") + ":")


def _default(field: FieldInfo) -> str | None:
    return None if field.is_required() else default_in_words(field.get_default(call_default_factory=True))
