"""`{network-table}`: every network with its parameters and its paper."""

from __future__ import annotations

from sphinx.application import Sphinx

from extensions import citations, docstrings
from extensions.generated import directive
from extensions.network_facts import WRAPPED, built
from rayfl.models import models

FROM_CODE = {"cnn_fashion_mnist": "PyTorch's MNIST example", "cnn_fashion_mnist_large": "FedExP's code"}
"""Networks that no paper describes."""

HEADER = ("| network | parameters | paper | inputs | classes |", "|---|---:|---|---|---:|")


def as_markdown(words: list[str]) -> str:
    """Returns the table; networks whose size depends on files have no numbers."""
    assert not words
    return "\n".join([*HEADER, *(_row(name) for name in models)])


def paper(name: str) -> str:
    """Returns authors, venue and year of the paper that the network's docstring, or that of its module, cites."""
    target = models.resolve(name)
    said = docstrings.of(target)
    return FROM_CODE.get(name) or citations.short(said.body) or citations.short(docstrings.citation(target))


def _row(name: str) -> str:
    network = built(models.resolve(name))
    link, count, shape, classes = f"[`{name}`](#{name.replace('_', '-')})", "–", "–", "–"
    if network is not None:
        link += f" on `{WRAPPED}`" if network.wraps else ""
        count = f"{network.parameters:_}".replace("_", "\N{NARROW NO-BREAK SPACE}")
        shape = "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}".join(map(str, network.shape))
        classes = str(network.classes)
    return f"| {link} | {count} | {paper(name)} | {shape} | {classes} |"


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{network-table}`."""
    app.add_directive("network-table", directive(as_markdown))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
