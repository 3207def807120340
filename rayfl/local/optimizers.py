"""Selects the local optimizer: rayfl's SGD, those of torch.optim by name, or your own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from rayfl.config.component import Choice, with_defaults
from rayfl.config.local import Local
from rayfl.config.registry import Registry, asks_for, check_options
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.wording import report_as_theirs

optimizers = Registry(
    "optimizer",
    {
        "adadelta": "torch.optim:Adadelta",
        "adafactor": "torch.optim:Adafactor",
        "adagrad": "torch.optim:Adagrad",
        "adam": "torch.optim:Adam",
        "adamax": "torch.optim:Adamax",
        "adamw": "torch.optim:AdamW",
        "asgd": "torch.optim:ASGD",
        "lbfgs": "torch.optim:LBFGS",
        "muon": "torch.optim:Muon",
        "nadam": "torch.optim:NAdam",
        "radam": "torch.optim:RAdam",
        "rmsprop": "torch.optim:RMSprop",
        "rprop": "torch.optim:Rprop",
        "sgd": "torch.optim:SGD",
        "sparseadam": "torch.optim:SparseAdam",
    },
)

ELEMENTWISE = frozenset(
    ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
)
"""Classes of torch.optim that treat all elements alike, whatever the shape of their tensor."""

REFUSED = {
    torch.optim.LBFGS: "it evaluates the loss several times a step, by a closure",
    torch.optim.SparseAdam: "it is for sparse gradients, and gradients here are dense",
}

MATRICES_ONLY = "Muon"
"""Takes only 2-D parameters; the others go to a second optimizer."""


NOT_HERE = {"capturable", "differentiable"}
"""Options of torch.optim for uses that local training does not have: CUDA graphs, gradients through a step."""


class _Optimizers(Choice):
    """Their arguments are options of their own and keys of `local`, so what is resolved is `local`."""

    def target(self, name: str, where: str = "") -> Any:
        kind = super().target(name, where)
        for refused, reason in REFUSED.items():
            if issubclass(kind, refused):
                raise ScenarioError(f"{where}: '{name}' cannot train clients: {reason}")
        return kind

    def resolve(self, chosen: Any, where: str) -> Any:
        if chosen.is_plain_sgd:
            return chosen
        return chosen.model_copy(update={"optimizer": _written_out(chosen.optimizer, chosen, f"{where}.optimizer")})


OPTIMIZERS = _Optimizers(optimizers, Optimizer)


def is_elementwise(kind: type[Optimizer]) -> bool:
    """Whether the optimizer may work on flat vectors; a user's own may not, since nothing is known about it."""
    return kind.__module__.startswith("torch.optim.") and kind.__name__ in ELEMENTWISE


def others_of(chosen: Named) -> Named | None:
    """Returns the optimizer of the parameters that Muon does not take; None for any other optimizer."""
    return Named.model_validate(chosen.options.get("others", "adamw")) if _is_muon(chosen) else None


def build_optimizer(chosen: Named, local: Local, tensors: Iterable[torch.Tensor], where: str) -> Optimizer:
    """Builds a fresh optimizer over some tensors.

    Raises:
        ScenarioError: An option is unknown, does not fit, or has its own key in `local`.
    """
    kind: type[Optimizer] = OPTIMIZERS.target(chosen.name, where)
    from_local = _given(kind, chosen, local, where)
    options = _own_options(chosen)
    arguments = {**from_local, **check_options(kind, options, ("params", *from_local), where)}
    try:
        return kind(list(tensors), **arguments)
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        if kind.__module__.startswith("torch."):
            raise ScenarioError(f"{where}: {' '.join(str(error).split())}") from None
        raise ScenarioError(report_as_theirs(error, f"{where}: {chosen.name}")) from None


def _written_out(chosen: Named, local: Local, where: str) -> Named:
    kind = OPTIMIZERS.target(chosen.name, where)
    build_optimizer(chosen, local, [torch.zeros(2, 2)], where)
    known = ("params", *_given(kind, chosen, local, where))
    options = with_defaults(kind, _own_options(chosen), known, where)
    if others := others_of(chosen):
        if _is_muon(others):
            raise ScenarioError(
                f"{where}.others: trains the parameters that 'muon' cannot train; choose another optimizer"
            )
        written = _written_out(others, local, f"{where}.others")
        options["others"] = {"name": written.name, **written.options}
    return Named.model_validate({"name": chosen.name, **options})


def _is_muon(chosen: Named) -> bool:
    return optimizers.resolve(chosen.name) is getattr(torch.optim, MATRICES_ONLY, None)


def _own_options(chosen: Named) -> dict[str, Any]:
    """The options that are passed to the class."""
    if not_here := sorted(key for key in NOT_HERE if chosen.options.get(key)):
        raise ScenarioError(f"local.optimizer.{not_here[0]}: is not for training clients; leave it out")
    return {key: value for key, value in chosen.options.items() if not (key == "others" and _is_muon(chosen))}


def _given(kind: type[Optimizer], chosen: Named, local: Local, where: str) -> dict[str, Any]:
    """The arguments that come from keys of `local`."""
    arguments: dict[str, Any] = {"lr": local.lr, "weight_decay": local.weight_decay}
    if chosen.name == "sgd":
        arguments["momentum"] = local.momentum
    for key in ("params", *arguments):
        if key in chosen.options:
            instead = "rayfl gives it" if key == "params" else f"set {key} of `local` instead"
            raise ScenarioError(f"{where}.{key}: is not an option of the optimizer: {instead}")
    if not asks_for(kind, "lr"):
        raise ScenarioError(f"{where}: '{chosen.name}' takes no lr, which `local` gives every optimizer")
    if not asks_for(kind, "weight_decay"):
        if local.weight_decay:
            raise ScenarioError(f"{where}: '{chosen.name}' takes no weight_decay; leave it out")
        del arguments["weight_decay"]
    return arguments
