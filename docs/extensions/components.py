"""Components that a scenario chooses by name, from the registries: description, options, and facts from the code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from extensions import docstrings, options, prose
from extensions.generated import directive
from extensions.network_facts import network_facts
from extensions.source_facts import source_facts
from rayfl.algorithms.aggregation import aggregations
from rayfl.algorithms.fedopt import server_optimizers
from rayfl.algorithms.penalty import penalties
from rayfl.algorithms.sampler import samplers
from rayfl.algorithms.transforms import answer_transforms
from rayfl.callbacks import callbacks
from rayfl.config.registry import Registry, first_parameter
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.data.named_functions import SOURCES
from rayfl.data.partition.split import PARTITIONERS
from rayfl.engine.schedules.schedule import schedules
from rayfl.local.optimizers import NOT_HERE, REFUSED, optimizers
from rayfl.local.sample_weights import WEIGHTINGS, weightings
from rayfl.models import models
from rayfl.models.construction import MODELS
from rayfl.studies.analysis.analysis import analyses
from rayfl.tasks import tasks
from rayfl.tasks.metrics import metrics
from rayfl.tasks.metrics.construction import METRICS

WITH_OTHER_KEYS = ("params", "lr", "weight_decay", "momentum", *sorted(NOT_HERE))
"""Arguments of PyTorch optimizers that rayfl provides, or for which `local` has keys."""


def _nothing(name: str, target: Any) -> list[str]:
    return []


@dataclass(frozen=True)
class Kind:
    """A registry and how its components are shown.

    Attributes:
        registry: The names.
        given: Arguments that rayfl provides, so they are not options.
        facts: Returns more paragraphs, in Markdown, for the name and object of a component.
        options: Whether a scenario writes options next to the name.
    """

    registry: Registry
    given: Sequence[str] = ()
    facts: Callable[[str, Any], list[str]] = _nothing
    options: bool = True


def _optimizer_facts(name: str, target: Any) -> list[str]:
    if reason := REFUSED.get(target):
        return [f"rayfl rejects it in `local`: {reason}."]
    found = [f"`{option.name}` (default: {option.default})" for option in options.of(target, WITH_OTHER_KEYS)]
    return [f"Options, with PyTorch's meaning: {', '.join(found)}."]


KINDS = {
    "networks": Kind(models, MODELS.given, network_facts),
    "data-sources": Kind(data_sources, SOURCES.given, source_facts),
    "partitions": Kind(partitioners, PARTITIONERS.given),
    "labelings": Kind(labelings, ("labels",)),
    "collations": Kind(collations, ("inputs",)),
    "augmentations": Kind(augmentations, ("x", "rng")),
    "tasks": Kind(tasks),
    "metrics": Kind(metrics, METRICS.given),
    "regularisers": Kind(penalties),
    "server-optimizers": Kind(server_optimizers),
    "aggregations": Kind(aggregations),
    "transforms": Kind(answer_transforms),
    "samplers": Kind(samplers),
    "optimizers": Kind(optimizers, (), _optimizer_facts, options=False),
    "weightings": Kind(weightings, WEIGHTINGS.given),
    "schedules": Kind(schedules, options=False),
    "callbacks": Kind(callbacks),
    "analyses": Kind(analyses),
}
"""The kinds of components, by their names on pages."""


def components(kind: str) -> Iterator[tuple[str, Any]]:
    """Yields the registered names of a kind with their objects."""
    registry = KINDS[kind].registry
    for name in registry:
        yield name, registry.resolve(name)


def options_of(kind: str, target: Any) -> list[options.Option]:
    """Returns the options that a scenario may write next to the name of a component."""
    if not KINDS[kind].options:
        return []
    given = KINDS[kind].given
    if kind in ("labelings", "weightings", "collations"):
        given = first_parameter(target, kind)
    return options.of(target, given)


def as_markdown(words: list[str]) -> str:
    """Returns all components of the named kinds."""
    return "\n\n".join(_component(kind, name, target) for kind in words for name, target in components(kind))


def _component(kind: str, name: str, target: Any) -> str:
    parts = [f"## `{name}`"]
    if target.__module__.startswith("torch"):
        parts.append(f"PyTorch's `torch.optim.{target.__name__}`.")
    else:
        said = docstrings.of(target)
        parts += [prose.as_markdown(text) for text in (said.summary, said.body) if text]
        if paper := docstrings.citation(target):
            parts.append(prose.as_markdown(paper))
    parts += KINDS[kind].facts(name, target)
    if listed := options.as_list(options_of(kind, target)):
        parts.append(listed)
    return "\n\n".join(parts)


def _files(words: list[str]) -> list[str]:
    modules = {target.__module__ for kind in words for _, target in components(kind)}
    return sorted(str(Path(str(sys.modules[name].__file__))) for name in modules if name.startswith("rayfl"))


def undescribed() -> list[str]:
    """Returns the options of rayfl's components that no docstring describes."""
    return [
        f"{kind} {name}.{option.name}"
        for kind in KINDS
        for name, target in components(kind)
        if not target.__module__.startswith("torch")
        for option in options_of(kind, target)
        if not option.text and not option.notes
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{components} networks`."""
    app.add_directive("components", directive(as_markdown, _files))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
