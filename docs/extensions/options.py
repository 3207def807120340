"""The options of whatever a scenario chooses by name: fields of a pydantic model, or arguments of a callable."""

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
    """A key and what a reader needs to set it.

    Attributes:
        name: The key.
        type: In words, as Markdown.
        default: In words, as Markdown; None where the key is required.
        text: What it means, as it stands in a docstring; empty where nothing is said.
        notes: Texts of the type aliases that it is annotated with.
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
        """What it means, in paragraphs."""
        return "\n\n".join(prose.as_markdown(text) for text in (self.text, *self.notes) if text)


def of_fields(kind: type[BaseModel], leave_out: Iterable[str] = ()) -> list[Option]:
    """The fields of a pydantic model, in the order of their definition."""
    texts, left_out = docstrings.described(kind), set(leave_out)
    return [
        Option(
            name,
            in_words(field.annotation, field.metadata),
            _default(field),
            texts.get(name, ""),
            tuple(docstrings.alias_texts(kind, name)),
        )
        for name, field in kind.model_fields.items()
        if name not in left_out
    ]


def of_arguments(target: Callable[..., Any], given: Iterable[str] = ()) -> list[Option]:
    """The arguments of a callable, except for those that rayfl provides and `**options`."""
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
    """The options of a registered object."""
    if inspect.isclass(target) and issubclass(target, BaseModel):
        return of_fields(target, {"name", *given})
    return of_arguments(target, given)


def as_list(options: Iterable[Option]) -> str:
    """The options as a list of definitions, which stays legible on narrow pages as a table does not."""
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


def _default(field: FieldInfo) -> str | None:
    return None if field.is_required() else default_in_words(field.get_default(call_default_factory=True))
