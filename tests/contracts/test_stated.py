"""Ranges, defaults and messages as people wrote them down, against what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rayfl.config.section import Section, descriptions
from tests.contracts.edges import BOUNDS, Schema, alternatives
from tests.contracts.places import PLACES

RANGES = {
    "int": "explicit ignore biases size shrink landscape.seed",
    "int > 0": "clients draw of uniform every samples bank batch_size epochs steps accumulate lr_drops choices "
    "augmentations physical_batch_size threads clients_at_once hosts rounds keep until quorum by_size concurrency "
    "buffer local_clusters select iterations candidates memory queue k thresholds bins hidden widths width groups "
    "layers embedding predictor clusters pairs test_images objects points tries shards_per_client patience rows starts "
    "histograms models updates window zoom crop.size resized_crop.size HostRange.min HostRange.max",
    "int > 0; float > 0 <= 1": "cohort",
    "int >= 0": "seed order_seed restarts delay byzantine min_size index padding order Checkpoint.rounds "
    "ParallelPhase.rounds RelayPhase.rounds BufferedPhase.rounds FullyAsynchronousPhase.rounds LocalPhase.rounds "
    "CentralPhase.rounds probe.rounds heterogeneity.rounds bounds.rounds",
    "int >= 0 <= 255": "threshold",
    "int >= 0; int > 0": "places",
    "int >= 0; float >= 0 < 1": "warmup",
    "int > 0 <= 1000000": "codes",
    "int > 0 <= 4096": "imagenet.size image_folder.size",
    "int >= 2": "weights quantiles.bins",
    "int >= 2 <= 16": "bits",
    "int >= 2 <= 62": "classes",
    "int >= 3": "kernel_size landscape.points",
    "int >= 32 <= 1024": "inaturalist.size chest_xray.size",
    "int >= 32 <= 512": "pacs.size",
    "int >= 5": "crop",
    "int >= 8 <= 1024": "fractals.size",
    "int >= 8 <= 48": "fraction_bits",
    "int >= 8 <= 512": "length",
    "int; float": "config",
    "float": "mean std steps_per_s samples_per_s down_bytes_per_s up_bytes_per_s dropout availability compute_watts "
    "transmit_watts value fill target",
    "float > 0": "repeat_s lr module_lr clip_value clip_norm target_epsilon max_grad_norm max_epsilon max_loss "
    "cpus_per_host memory_gb HostOptions.resources "
    "watchdog_s deadline_s initial slope tau alpha temperature inner_lr smoothing class_weights ratio "
    "span ridge Quantile.noise_multiplier perfedavg.delta regression.delta dirichlet.beta fedmeta.meta_lr "
    "gaussian_blur.sigma",
    "float > 0 < 0.5": "trimmed_mean.share",
    "float > 0 < 1": "test_share validation_share server_share delta ema_decay quantile query_share train_share",
    "float > 0 <= 1": "lr_decay lr_drop bernoulli mixing decay scale top_k.share",
    "float > 0 <= 180": "degrees",
    "float >= 0": "l2 lognormal kinds weight_decay noise_multiplier gpus_per_host device_cache_gb client_state_gb "
    "minutes exponent mu epsilon beta q meta_lr brightness contrast saturation min_delta Between.uniform",
    "float >= 0 < 1": "momentum beta_1 beta_2 label_smoothing cnn_fashion_mnist.dropout",
    "float >= 0 <= 0.5": "overhang hue",
    "float >= 0 <= 1": "final share gamma probability orchestra.momentum moco.momentum",
    "float >= 0 <= 100": "sigma",
    "float >= 0.15; float <= 1": "sizes",
    "float >= 1": "over_selection",
}
"""The range of every number: keys whose range is the same wherever they are, and others with their section."""

SIGNS = dict(zip(BOUNDS, (">", ">=", "<", "<="), strict=True))
RANGE_OF = {name: text for text, names in RANGES.items() for name in names.split()}


def numbers(schema: Schema, definitions: Schema) -> Iterator[str]:
    for part in alternatives(schema, definitions):
        if part.get("type") in ("integer", "number"):
            limits = [f"{sign} {part[name]:.12g}" for name, sign in SIGNS.items() if name in part]
            text = " ".join([{"integer": "int", "number": "float"}[part["type"]], *limits])
            yield re.sub("^int >= 1", "int > 0", text)
        for inner in (*part.get("prefixItems", [part.get("items")]), part.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from numbers(inner, definitions)


def test_every_number_has_the_range_that_is_written_down() -> None:
    used = set()
    for place in PLACES:
        for key, schema in place.options.items():
            found = "; ".join(dict.fromkeys(numbers(schema, place.definitions)))
            named = f"{place.name.rpartition(' ')[2]}.{key}"
            if found and not place.name.startswith("optimizer "):  # PyTorch's
                assert RANGE_OF.get(named, RANGE_OF.get(key)) == found, named
                used.add(named if named in RANGE_OF else key)
    assert used == RANGE_OF.keys()


def sections(kind: type[Section] = Section) -> Iterator[type[Section]]:
    for derived in kind.__subclasses__():
        yield from (derived, *sections(derived))


def test_every_default_in_a_description_is_the_default() -> None:
    words: dict[str, Any] = {"none": (), "empty": "", "all clients (1.0)": 1.0, "true": True, "false": False}
    checked = 0
    for section in (kind for kind in sections() if kind.__module__.startswith("rayfl.")):
        for key, text in descriptions(section).items():
            said = re.search(r"Default: `?(all clients \(1\.0\)|\d[\d.e-]*\d|\w+)|`(\w+)` \(the default\)", text)
            default = section.model_fields[key].get_default(call_default_factory=True)
            if said is None or default is None or section.model_fields[key].is_required():
                continue
            stated, plain = said[1] or said[2], getattr(default, "name", default)
            known: tuple[Any, ...] = (words.get(stated, stated), (stated,), {})
            assert plain in known or plain == float(stated), f"{section.__name__}.{key}"
            checked += 1
    assert checked > 90
