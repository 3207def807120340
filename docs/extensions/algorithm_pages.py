"""`{algorithm} fedavg`: everything about an algorithm except its formula, which is written by hand on its page."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from sphinx.application import Sphinx

from extensions import algorithm_curves, algorithm_facts, docstrings, options, prose
from extensions.generated import directive
from rayfl.algorithms import algorithms
from rayfl.algorithms.construction import PRESETS

FORMULA = re.compile(r"(\w+: )?\w <- ")
"""The beginning of a summary that is a formula; the page has it written by hand."""


def as_markdown(words: list[str]) -> str:
    """Returns the parts of an algorithm page below the formula."""
    (name,) = words
    parts = [
        *_paper(name),
        *_in_general_form(name),
        *_text(name),
        "## Learning curve",
        algorithm_curves.as_markdown(name),
        "## Options",
        options.as_list(_options(name)) or "None.",
        "## What it works with",
        _support(name),
        "## State and evaluation",
        _state(name),
    ]
    return "\n\n".join(parts)


def in_one_line(words: list[str]) -> str:
    """Returns a table of all algorithms and the features that they support."""
    uses = list(algorithm_facts.USES)
    lines = [f"| algorithm | {' | '.join(uses)} |", "|---" * (len(uses) + 1) + "|"]
    for name in algorithms:
        cells = [_answer(*algorithm_facts.support(name, use), short=True) for use in uses]
        lines.append(f"| [`{name}`]({name}.md) | {' | '.join(cells)} |")
    return "\n".join(lines)


def _paper(name: str) -> list[str]:
    kinds = [PRESETS[name].part()[1]] if name in PRESETS else []
    citations = [docstrings.citation(kind) for kind in (*kinds, algorithms.resolve(name))]
    return [prose.as_markdown(next(citation for citation in citations if citation))]


def _in_general_form(name: str) -> list[str]:
    if general := algorithm_facts.preset_in_words(name):
        short = f'A preset: `algorithm = "{name}"` is short for `algorithm = {general}`.'
        return [f"{short} It has the options below and those of [`fedavg`](fedavg.md)."]
    if presets := algorithm_facts.presets_of(name):
        listed = ", ".join(f"[`{preset}`]({preset}.md)" for preset in presets)
        return [f"Presets that choose one of its parts: {listed}."]
    return []


def _text(name: str) -> list[str]:
    kind = PRESETS[name].part()[1] if name in PRESETS else algorithms.resolve(name)
    said = [docstrings.of(base) for base in kind.__mro__ if base is kind or base.__name__.startswith("_")]
    texts = [text for one in said for text in (one.summary, one.body)]
    return [prose.as_markdown(text) for text in texts if text and not FORMULA.match(text)]


def _options(name: str) -> list[options.Option]:
    kind = PRESETS[name].part()[1] if name in PRESETS else algorithms.resolve(name)
    return options.of(kind)


def _answer(chosen: algorithm_facts.Table | None, reason: str, short: bool = False) -> str:
    if chosen is None:
        return "no" if short else f"no: {prose.one_line(reason)}"
    if not chosen:
        return "yes"
    return f"with `{algorithm_facts.chosen(chosen)}`"


def _support(name: str) -> str:
    return "\n\n".join(f"{use}\n: {_answer(*algorithm_facts.support(name, use))}" for use in algorithm_facts.USES)


def _state(name: str) -> str:
    algorithm = algorithm_facts.built(name)
    clients, server = algorithm_facts.state(name)
    facts = {
        "Clients keep": _kept(clients),
        "The server keeps": _kept(server),
        "Exchanges of a round": str(algorithm_facts.exchanges(name)),
        "Evaluated model": f"`{type(algorithm).default_eval_model}`, unless {{key}}`phases.N.eval_model` names another",
        "Names for `report`": ", ".join(f"`{report}`" for report in ("step", "divergence", *type(algorithm).reports)),
    }
    if reason := algorithm.assumes_sgd():
        facts["Only plain SGD at clients"] = prose.one_line(reason)
    return "\n\n".join(f"{title}\n: {text}" for title, text in facts.items())


def _kept(declared: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}`, to the end of the {scope}" for name, scope in declared.items()) or "nothing"


def _files(words: list[str]) -> list[str]:
    """Returns the modules of the algorithm, its part and their bases."""
    kinds = [algorithms.resolve(name) for name in words or algorithms]
    kinds += [PRESETS[name].part()[1] for name in words if name in PRESETS]
    modules = {base.__module__ for kind in kinds for base in kind.__mro__ if base.__module__.startswith("rayfl")}
    modules |= {"tools.algorithm_curves.settings"}
    return sorted(str(Path(str(sys.modules[name].__file__))) for name in modules)


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{algorithm} fedavg` and `{algorithms}`."""
    app.add_directive("algorithm", directive(as_markdown, _files))
    app.add_directive("algorithms", directive(in_one_line, _files))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
