"""Every section of a scenario and every registered component: its options, and the smallest scenario that has it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from rayfl.algorithms import algorithms
from rayfl.algorithms.aggregation import aggregations
from rayfl.algorithms.construction import PRESETS
from rayfl.algorithms.fedopt import server_optimizers
from rayfl.algorithms.penalty import penalties
from rayfl.algorithms.sampler import samplers
from rayfl.algorithms.transforms import answer_transforms
from rayfl.callbacks import callbacks
from rayfl.config import Scenario, load_scenario
from rayfl.config.phase import config_of
from rayfl.config.registry import Registry
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.data.named_functions import SOURCES
from rayfl.data.partition.split import PARTITIONERS
from rayfl.engine.schedules.schedule import schedules
from rayfl.local.optimizers import NOT_HERE, REFUSED, optimizers
from rayfl.local.sample_weights import WEIGHTINGS, weightings
from rayfl.models import models
from rayfl.models.construction import MODELS
from rayfl.runs.resolution import resolve
from rayfl.studies.analysis.analysis import ANALYSES, analyses
from rayfl.tasks import tasks
from rayfl.tasks.metrics import metrics
from rayfl.tasks.metrics.construction import METRICS
from tests.contracts.edges import KeyPath, Schema, alternatives

LEAST: Mapping[str, dict[str, Any]] = {
    "Data": {"name": "handwriting"},
    "Classes": {"places": [[0, 1]]},
    "Owners": {"places": [[0, 1]]},
    "Normalization": {"mean": [0.5], "std": [0.5]},
    "Start": {"file": "weights.safetensors"},
    "Devices": {"up_bytes_per_s": 1},
    "Between": {"uniform": [0.5, 1]},
    "LogNormal": {"lognormal": [1, 0.5]},
    "Kinds": {"kinds": [1]},
    "Traced": {"file": "devices.parquet"},
    "Sessions": {"sessions": "sessions.parquet"},
    "Unfreezing": {"share": 0.5},
    "Uniform": {"uniform": [1, 2]},
    "Choices": {"choices": [1]},
    "SampleDP": {"max_grad_norm": 1, "noise_multiplier": 1},
    "ClientDP": {"level": "central", "clip_norm": 1, "noise_multiplier": 1},
    "Quantile": {"quantile": 0.5},
    "Bernoulli": {"bernoulli": 0.5},
    "BySize": {"by_size": 2},
    "Explicit": {"explicit": [[0]]},
    "Staleness": {"name": "constant"},
    "ParallelPhase": {"rounds": 1, "cohort": 2},
    "RelayPhase": {"rounds": 1, "cohort": 2},
    "BufferedPhase": {"rounds": 1, "concurrency": 2, "buffer": 2},
    "FullyAsynchronousPhase": {"rounds": 1, "concurrency": 2},
    "LocalPhase": {"rounds": 1},
    "CentralPhase": {"rounds": 1},
    "partitioner dirichlet": {"beta": 1},
    "partitioner dirichlet_plain": {"alpha": 1},
    "partitioner dirichlet_balanced": {"alpha": 1},
    "partitioner dirichlet_per_client": {"alpha": 1},
    "partitioner dirichlet_per_client_unequal": {"alpha": 1},
    "way to make classes of labels column": {"index": 0},
    "model projected": {"network": "mlp"},
    "model siamese": {"network": "mlp"},
    "model orchestra": {"network": "mlp"},
    "model momentum_contrast": {"network": "mlp"},
    "sampler power_of_choice": {"clients": 2, "candidates": 3},
    "sampler largest_first": {"clients": 3},
    "sampler by_label": {"clients": 3},
    "sampler highest_loss_first": {"clients": 3},
    "data set imagenet": {"size": 64},
    "data set image_folder": {"path": "images", "size": 64},
    "data set arrow_file": {"path": "data.arrow", "inputs": "x", "label": "y"},
    "data set npz_file": {"path": "data.npz"},
    "data set parquet_folder": {"path": "data", "inputs": "x", "label": "y"},
    "data set prepared": {"path": "data"},
    "data set text_files": {"path": "text"},
    "data set torchvision": {"dataset": "MNIST"},
    "HostRange": {"max": 2},
    "metric top_k": {"k": 2},
}
"""The keys that a section or component needs."""

PHASE_KEY: KeyPath = ("phases", 0)
PHASE = {"name": "p", "rounds": 1, "cohort": 2}
TABLES: dict[str, Any] = {"data": {"name": "handwriting"}, "model": "mlp", "phases": [PHASE]}


@dataclass(frozen=True)
class Place:
    """A section or component within a scenario.

    Attributes:
        name: The section's title, or the kind and name of the component.
        path: Where it is in `tables`; empty for what is not part of a scenario.
        options: The schema of each of its options.
        definitions: The schemas to which these refer.
        tables: A scenario that has it, with the least that it needs.
        is_component: Whether it is chosen by name.
    """

    name: str
    path: KeyPath
    options: Mapping[str, Schema]
    definitions: Schema
    tables: dict[str, Any]
    is_component: bool = False

    @property
    def least(self) -> dict[str, Any]:
        """The keys that it needs."""
        return LEAST.get(self.name, {})

    def key(self, *path: int | str) -> str:
        """The dotted key of one of its options, with the phase by name."""
        key = ".".join(map(str, (*self.path, *path)))
        return key if key == "phases.0.name" else key.replace("phases.0", "phases.p")

    def with_options(self, **options: Any) -> dict[str, Any]:
        """Its scenario with these options changed; None removes one."""
        tables = copy.deepcopy(self.tables)
        section = tables
        for part in self.path:
            section = section[part]  # type: ignore[index]
        section |= options
        for key in [key for key, value in options.items() if value is None]:
            del section[key]
        return tables

    def build(self, tables: Mapping[str, Any]) -> Any:
        """What rayfl makes of a scenario with it, before any data is there."""
        if not self.path and self.is_component:
            return ANALYSES.build(tables)
        loaded = load_scenario(tables)
        return resolve(loaded) if self.is_component else loaded


def placed(tables: Mapping[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """A copy of some tables with a value at a path, in tables and lists that it makes where there are none."""
    whole: dict[str, Any] = copy.deepcopy(dict(tables))
    inner: Any = whole
    for key, after in zip(path, [*path[1:], None], strict=True):
        new: Any = value if after is None else [] if after == 0 else {}
        if isinstance(inner, list):
            inner[:] = [inner[0] if inner and after is not None else new]
        elif after is None or not isinstance(inner.get(key), dict | list):
            inner[key] = new
        inner = inner[key]
    return whole


def sections() -> Iterator[Place]:
    """Every section of a scenario, where it is first found."""
    seen = {"BySampler"}  # its keys are those of a component
    roots: list[tuple[KeyPath, Schema, dict[str, Any]]] = [((), Scenario.model_json_schema(), TABLES)]
    for name in schedules:
        of_phase = config_of(name).model_json_schema()
        phase = {"name": "p", "schedule": name, **LEAST[of_phase["title"]]}
        roots.append((PHASE_KEY, of_phase, placed(TABLES, PHASE_KEY, phase)))
    for path, schema, tables in roots:
        for place in _sections(path, schema, schema["$defs"], tables):
            if place.name not in seen:
                seen.add(place.name)
                yield place


def _sections(path: KeyPath, schema: Schema, definitions: Schema, tables: dict[str, Any]) -> Iterator[Place]:
    yield Place(schema["title"], path, schema["properties"], definitions, tables)
    for key, field in schema["properties"].items():
        for part in alternatives(field, definitions):
            is_list = part.get("type") == "array"
            inner = (*alternatives(part["items"], definitions), {})[0] if is_list and "items" in part else part
            at = (*path, key, 0) if is_list else (*path, key)
            if "properties" in inner and inner["title"] != "Named":
                least = placed(tables, at, LEAST.get(inner["title"], {}))
                yield from _sections(at, inner, definitions, least)


UNIFORM = placed(TABLES, (*PHASE_KEY, "algorithm"), {"weighting": "uniform"})
KINDS: Sequence[tuple[Registry, KeyPath, Sequence[str]]] = (
    (algorithms, (*PHASE_KEY, "algorithm"), ()),
    (penalties, (*PHASE_KEY, "algorithm", "penalties", 0), ()),
    (server_optimizers, (*PHASE_KEY, "algorithm", "server_optimizer"), ()),
    (aggregations, (*PHASE_KEY, "algorithm", "aggregation"), ()),
    (answer_transforms, (*PHASE_KEY, "transforms", 0), ()),
    (samplers, (*PHASE_KEY, "cohort"), ()),
    (optimizers, (*PHASE_KEY, "local", "optimizer"), ("params", "lr", "weight_decay", "momentum", *NOT_HERE)),
    (weightings, (*PHASE_KEY, "local", "sample_weights"), WEIGHTINGS.given),
    (tasks, ("task",), ()),
    (metrics, ("evaluation", "metrics", 0), METRICS.given),
    (models, ("model",), MODELS.given),
    (data_sources, ("data", "options"), SOURCES.given),
    (partitioners, ("data", "partition"), PARTITIONERS.given),
    (labelings, ("data", "labels_by"), ("labels",)),
    (collations, ("data", "collate"), ("inputs",)),
    (augmentations, ("data", "augment", 0), ("x", "rng")),
    (callbacks, ("callbacks", 0), ()),
    (analyses, (), ()),
)
"""Each registry with the place of its components in a scenario, and the arguments that rayfl provides."""

ELSEWHERE = {"live_table": "needs a notebook", "ray_tune": "to a trial of Ray Tune"} | {
    name: "cannot train clients" for name in optimizers if optimizers.resolve(name) in REFUSED
}
"""Components that work only in certain programs, or never, with what is said of them."""


def components() -> Iterator[Place]:
    """Every registered component but the schedules, whose keys are those of a phase."""
    for registry, path, given in KINDS:
        for name in registry:
            title = f"{registry.kind} {name}"
            options, definitions = _options(registry.resolve(name), given)
            if registry is algorithms and name in PRESETS:
                own, more = _options(PRESETS[name].part()[1], ())
                options, definitions = own | options, definitions | more
            chosen = {"sampler" if registry is samplers else "name": name, **LEAST.get(title, {})}
            tables = placed(UNIFORM if registry is aggregations else TABLES, path, chosen) if path else chosen
            if registry is data_sources:
                tables = {**TABLES, "data": {"name": chosen.pop("name"), "options": chosen}}
            yield Place(title, path, options, definitions, tables, is_component=True)


def _options(target: Any, given: Sequence[str]) -> tuple[dict[str, Schema], dict[str, Any]]:
    if isinstance(target, type) and issubclass(target, BaseModel):
        schema = target.model_json_schema()
        return {key: one for key, one in schema["properties"].items() if key != "name"}, schema.get("$defs", {})
    parameters = inspect.signature(target, eval_str=True).parameters.values()
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return {one.name: _schema(one.annotation) for one in named if one.name not in given}, {}


def _schema(annotation: Any) -> Schema:
    try:
        return {} if annotation is inspect.Parameter.empty else TypeAdapter(annotation).json_schema()
    except Exception:  # some of PyTorch's annotations name tensors
        return {}


PLACES = [*sections(), *components()]
