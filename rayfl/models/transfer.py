"""Transfers weights to another model by parameter name, with explicit rules for names that do not match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import torch

from rayfl.errors import DataError, ScenarioError
from rayfl.models.feature_layer import head_of, undeclared
from rayfl.models.network import Network
from rayfl.models.tensors import followed, listed, taken_over

if TYPE_CHECKING:
    from rayfl.models.flat import FlatModel

Head = Literal["keep", "fresh"]
"""Whether to take the weights of the feature layer from the source too, or keep those of the new model."""


@dataclass(frozen=True)
class Transfer:
    """The outcome of a transfer.

    Attributes:
        vector: The resulting parameters and buffers of the target, [length of the flat vector] float32 on the CPU.
        constants: The memory of its resulting constants, on the CPU.
        taken: Names whose values are those of the source.
        fresh: Names of the target that kept its values because of a rule.
        unmatched: Names of the source that the target does not have, left out because of a rule.
        discrete: The resulting integer and boolean buffers of the target (`FlatModel.discrete_names`).
    """

    vector: torch.Tensor
    constants: torch.Tensor
    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    unmatched: tuple[str, ...]
    discrete: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def summary(self) -> str:
        """One line for users."""
        return taken_over(self.taken, self.fresh, self.unmatched)


def transfer(
    source: Mapping[str, Any],
    target: FlatModel,
    head: Head = "keep",
    ignore: Sequence[str] = (),
    where: str = "state dict",
) -> Transfer:
    """Computes the vector and the constants of the target with the values of a source; changes neither.

    Every name must be on both sides, with the same shape, unless a rule covers it; integer and boolean buffers also
    with the same type. Buffers with infinities are constants, which must have the same values; all other values must be
    finite. Batch norm's counters may be missing and are not taken. For a tensor that is tied in the target, one of its
    names is enough. Tensors of a copy (`Network.copies`) that are not taken equal their originals.

    Args:
        source: A state dict: PyTorch's names and layout, floating-point tensors of any precision.
        target: The model that receives the values.
        head: With "fresh", the feature layer keeps the values of the target.
        ignore: Shell patterns ("layer3.*") of names that keep the values of the target, or are left out of the source.
        where: Description of the source, for messages.

    Raises:
        DataError: Names without a rule are only on one side, differ in shape, are not tensors of numbers, or hold
            other constants or values that are not finite.
        ScenarioError: A pattern matches no name, the head is "fresh" but the target declares none, the rules cover only
            some names of a tied tensor, or they leave nothing to take.
    """
    copies = target.module.copies if isinstance(target.module, Network) else {}
    covered = _covered([*target.names, *source], target, head, ignore)
    covered |= {name for name in target.names if name not in source and followed(name, copies)}
    _check(source, target, covered, where)
    vector, constants = (one.detach().to("cpu", copy=True) for one in (target.vector, target.constants.memory))
    views = target.views(vector, constants)
    for name, view in views.items():
        if name in source and name not in covered:
            view.copy_(source[name].detach())
    for name, view in views.items():
        if name in covered and (original := followed(name, copies)):
            view.copy_(views[original])
    uncounted = target.counters - source.keys()
    taken = tuple(name for name in target.names if name not in covered | uncounted)
    if not taken:
        raise ScenarioError(f"{where}: the rules leave nothing to transfer, since they cover every name of the model")
    discrete, shapes = target.discrete(), target.shapes()
    discrete |= {name: source[name].detach().cpu() for name in discrete if name in taken and name in source}
    for name in discrete:
        if name in covered and (original := followed(name, copies)) in discrete:
            discrete[name] = discrete[original]
    return Transfer(
        vector,
        constants,
        taken,
        fresh=tuple(name for name in target.names if name in covered),
        unmatched=tuple(name for name in source if name not in shapes),
        discrete=discrete,
    )


def renamed(source: Mapping[str, Any], prefixes: Mapping[str, str], where: str) -> dict[str, Any]:
    """Returns the same tensors, with prefixes of their names replaced.

    Args:
        source: A state dict.
        prefixes: New prefixes by old ones; if several match, the longest counts.
        where: Description of the source, for messages.

    Raises:
        ScenarioError: No name has such a prefix, or two tensors would have the same name.
    """
    longest_first, used = sorted(prefixes, key=len, reverse=True), set[str]()
    tensors: dict[str, Any] = {}
    for name, value in source.items():
        prefix = next((prefix for prefix in longest_first if name.startswith(prefix)), None)
        new = name if prefix is None else prefixes[prefix] + name.removeprefix(prefix)
        if prefix is not None:
            used.add(prefix)
        if new in tensors:
            raise ScenarioError(f"rename: two tensors of {where} would have the name '{new}'; use different names")
        tensors[new] = value
    for prefix in prefixes:
        if prefix not in used:
            raise ScenarioError(f"rename: no name of {where} begins with '{prefix}'; names are {listed(list(source))}")
    return tensors


def _rename_for(source: Sequence[str], target: Sequence[str]) -> str:
    """Suggests `start.rename` if the names of one side only have an additional prefix of a wrapper; else empty."""
    for longer, shorter, rule in ((source, target, '{{ "{}" = "" }}'), (target, source, '{{ "" = "{}" }}')):
        first = min(longer, default="")
        for prefix in (first[: place + 1] for place, letter in enumerate(first) if letter == "."):
            if all(name.startswith(prefix) for name in longer) and any(
                name[len(prefix) :] in shorter for name in longer
            ):
                return f"; start.rename = {rule.format(prefix)} makes names agree"
    return ""


def _covered(names: Sequence[str], target: FlatModel, head: Head, ignore: Sequence[str]) -> set[str]:
    covered: set[str] = set()
    if head == "fresh":
        layer = head_of(target.module)
        if layer is None:
            raise ScenarioError(f"head = 'fresh': {undeclared(target.module)}, or leave it out and use ignore")
        covered |= {name for name in names if name.startswith(f"{layer}.")}
    for pattern in ignore:
        matched = {name for name in names if fnmatchcase(name, pattern)}
        if not matched:
            raise ScenarioError(f"ignore: '{pattern}' matches no name of the model or of its start")
        covered |= matched
    for slot in (*target.layout, *target.constants.slots):
        rest = [name for name in slot.names if name not in covered]
        if 0 < len(rest) < len(slot.names):
            one = next(name for name in slot.names if name in covered)
            raise ScenarioError(
                f"model: the rules cover '{one}' but not '{rest[0]}', and they are one tensor (tied weights); ignore "
                "both or none"
            )
    return covered


def _check(source: Mapping[str, Any], target: FlatModel, covered: set[str], where: str) -> None:
    shapes = target.shapes()
    slots, own = target.slots(), target.views(target.vector, target.constants.memory)
    problems: list[str] = []
    needed = [name for name in shapes if name not in covered | (target.counters - source.keys())]
    discrete = target.initial_discrete()
    missing = [n for n in needed if not any(m in source for m in (slots[n].names if n in slots else (n,)))]
    if missing:
        problems.append(f"lacks {listed(missing)} of this model")
    if unexpected := [name for name in source if name not in shapes and name not in covered]:
        problems.append(f"has {listed(unexpected)}, which this model does not have")
    for name in (name for name in needed if name in source):
        tensor, first = source[name], slots[name].name if name in slots else name
        if not isinstance(tensor, torch.Tensor):
            problems.append(f"'{name}' is of type {type(tensor).__name__}, not a tensor")
        elif tensor.shape != shapes[name]:
            problems.append(f"'{name}' has shape {tuple(tensor.shape)}, this model's has {tuple(shapes[name])}")
        elif name in target.constant_names and not _constant(tensor, target.initial(name)):
            problems.append(
                f"'{name}' differs from this model's, which holds infinities or NaN and is constant: build the model "
                "with the same values, or ignore it"
            )
        elif name in slots and not tensor.is_floating_point():
            problems.append(f"'{name}' is {tensor.dtype}, this model's is torch.{slots[name].dtype}")
        elif name in slots and not tensor.float().isfinite().all() and own[name].isfinite().all():
            problems.append(f"'{name}' holds infinities or NaN, this model's is finite")
        elif name in discrete and tensor.dtype != discrete[name].dtype:
            problems.append(f"'{name}' is {tensor.dtype}, this model's is {discrete[name].dtype}")
        elif not _same(tensor, source.get(first, tensor)):
            problems.append(f"'{first}' and '{name}' differ, but are one tensor in this model (tied weights)")
    if problems:
        more = f"; and {len(problems) - 5} more like these" if len(problems) > 5 else ""
        remedy = _rename_for(unexpected, missing)
        raise DataError(f"{where}: " + "; ".join(problems[:5]) + more + remedy)


def _constant(tensor: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether a source has the values of a constant, in the precision of the less precise of the two."""
    dtype = min(tensor.dtype, own.dtype, key=lambda one: one.itemsize)
    return tensor.is_floating_point() and same_values(tensor.detach().cpu().to(dtype), own.cpu().to(dtype))


def _same(one: torch.Tensor, other: Any) -> bool:
    return one is other or (isinstance(other, torch.Tensor) and torch.equal(one, other))


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors agree in shape, type, device and values, where NaN equals NaN."""
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(one, other) or (
        one.is_floating_point() and bool(torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all())
    )
