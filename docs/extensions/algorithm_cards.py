"""`{algorithm-cards} fedavg fedprox`: algorithms with paper, year, a sentence, and their learning curve."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from extensions import citations, docstrings
from extensions.cards import Card, grid
from extensions.generated import directive
from rayfl.algorithms import algorithms
from rayfl.algorithms.construction import PRESETS
from tools.algorithm_curves.settings import NO_CURVE, REFERENCE

PAGES = Path(__file__).parents[1] / "reference" / "algorithms"

SENTENCES = {
    "fedavg": "Clients train locally, and the server averages their models.",
    "fedprox": "A proximal term keeps local models near the global one.",
    "moon": "A contrastive term pulls a client's features towards the global model's.",
    "feddecorr": "A penalty on correlated features keeps local models from collapsing to few dimensions.",
    "fedavgm": "The server adds momentum to the mean change.",
    "fedadagrad": "The server steps with Adagrad along the mean change.",
    "fedadam": "The server steps with Adam along the mean change.",
    "fedyogi": "The server steps with Yogi along the mean change.",
    "scaffold": "Control variates correct every local step for the drift of its client.",
    "feddyn": "Dynamic regularisation aligns the clients' minima with the global one.",
    "fedexp": "The server extrapolates as far as the clients' disagreement allows.",
    "fednova": "Updates are normalised, so that clients with more steps do not pull the average further.",
    "qfedavg": "Clients with larger losses get larger weights, which evens out accuracy.",
    "qfedsgd": "The same weights, on one gradient per client instead of local training.",
    "coprefl": "Pre-training whose meta-step seeks a model that serves all clients well and evenly.",
    "fedbabu": "Only the body trains federatedly; the head keeps its initial weights.",
    "orchestra": "Clients without labels cluster their representations, and the server their centroids.",
    "ditto": "Every client keeps a personal model near the global one.",
    "fedbn": "Clients keep their own batch norm.",
    "fedper": "Clients keep their own head and share the body.",
    "fedmeta": "Meta-learning: a model that adapts to a client by one gradient step.",
    "perfedavg": "Minimises the loss after one local step, so that clients adapt quickly.",
}


def as_markdown(words: list[str]) -> str:
    """Returns a grid of the named algorithms."""
    return grid(_card(name) for name in words)


def paper(name: str) -> str:
    """Returns authors, venue and year of the algorithm's paper."""
    kinds = [PRESETS[name].part()[1]] if name in PRESETS else []
    cited = (docstrings.citation(kind) for kind in (*kinds, algorithms.resolve(name)))
    return citations.short(next(text for text in cited if text))


def _card(name: str) -> Card:
    heading = (PAGES / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
    title = heading.removeprefix("# ").partition(":")[0]
    if name in NO_CURVE:
        return Card(title, SENTENCES[name], name, footer=paper(name))
    beside = "" if name == REFERENCE else " and, in grey, of FedAvg"
    alt = f"Test accuracy of {title}{beside}"
    return Card(title, SENTENCES[name], name, f"/figures/algorithms/{name}.png", alt, paper(name))


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{algorithm-cards}`."""
    app.add_directive("algorithm-cards", directive(as_markdown))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
