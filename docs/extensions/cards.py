"""Cards in a grid, as Markdown for sphinx-design."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Card(NamedTuple):
    """A card that links to a page.

    Attributes:
        title: Its heading.
        text: Markdown below it.
        link: The page, relative to the one with the card and without `.md`, or a heading of the page (`#name`).
        image: A picture above the heading, as a path from the documentation's root or a data URI; none if empty.
        alt: What the picture shows.
        footer: A line at the bottom; none if empty.
    """

    title: str
    text: str
    link: str
    image: str = ""
    alt: str = ""
    footer: str = ""


def grid(cards: Iterable[Card], columns: str = "2 2 3 3") -> str:
    """Returns the cards in a grid; `columns` are numbers for phones, tablets, laptops and wider screens."""
    parts = "\n\n".join(_item(card) for card in cards)
    return f"::::{{grid}} {columns}\n:gutter: 3\n:class-container: thumbnails\n\n{parts}\n\n::::"


def _item(card: Card) -> str:
    kind = "url" if card.link.startswith("#") else "doc"
    options = [f':link: "{card.link}"', f":link-type: {kind}"]
    if card.image:
        options += [f":img-top: {card.image}", f":img-alt: {card.alt}"]
    footer = f"\n\n```{{card-footer}}\n{card.footer}\n```" if card.footer else ""
    return "\n".join((f":::{{grid-item-card}} {card.title}", *options, "", card.text + footer, ":::"))
