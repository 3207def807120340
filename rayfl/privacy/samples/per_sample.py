"""Per-sample gradients, clipped and summed, from Opacus' hooks on a copy of the resident network."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
from opacus.layers.dp_rnn import RNNLinear
from torch import nn

from rayfl.errors import ScenarioError
from rayfl.local.client_state import changes_under_dp
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import Slot
from rayfl.privacy.samples.opacus_layers import contiguous_copy, copy_modes, layer_gradients
from rayfl.privacy.samples.released_sums import (
    ReleasedSums,
    SampleGradients,
    Whole,
    add_clipped,
    clipping_factors,
    mean_of_copies,
)
from rayfl.tasks.task import Task

_ATTENTION = "aten::_scaled_dot_product"


class PerSampleGradients:
    """Clipped per-sample gradients at the values of a resident model.

    Every call reads the training parameters and the mode of each module from the resident network.

    Args:
        model: The resident model; its network is copied once.
        task: The task whose per-sample losses are differentiated.
        ghost: Whether to compute only the norms in a first pass and the clipped sum in a second one. Only for networks
            whose trained layers are all linear layers and embeddings (`norm_sampled`).
    """

    def __init__(self, model: FlatModel, task: Task, ghost: bool = False) -> None:
        self._model, self._task, self._ghost = model, task, ghost
        self._network = contiguous_copy(model)
        wrapper = _GhostClipping if ghost else _GradSamples
        self._wrapped = wrapper(self._network, loss_reduction="sum", strict=False)
        self._parameters = dict(self._network.named_parameters())
        self._hooked = {name for name, parameter in self._parameters.items() if parameter.requires_grad}
        buffers = dict(self._network.named_buffers())
        self._tensors = [
            (slot.view(model.vector), (self._parameters if slot.name in self._parameters else buffers)[slot.name])
            for slot in model.layout
        ]
        self._discrete: dict[str, torch.Tensor] = {}

    def add_clipped(
        self,
        x: Any,
        y: torch.Tensor,
        bound: float,
        at_once: int,
        copies: int = 1,
        sums: ReleasedSums | None = None,
        counted: int | None = None,
    ) -> torch.Tensor:
        """Adds the sum of clipped gradients to the resident model's gradient.

        The gradient g of a sample, over all parameters that train, counts as g min(1, bound / ||g||), and as zero if
        its norm is not finite, so that one sample cannot spoil the sum.

        Args:
            x: Inputs of n * copies samples, as the network takes them.
            y: Their labels.
            bound: C.
            at_once: Number of these gradients in memory at a time.
            copies: Number of consecutive inputs that are augmented copies of one sample; their mean gradient is
                clipped.
            sums: Clips and adds instead, to its own bound; not with ghost clipping.
            counted: With `sums`, how many of the n samples count, starting from the first; None for all.

        Returns:
            [n * copies], the losses.
        """
        slots = self._prepare()
        number = len(y) // copies if counted is None else counted
        size = max(1, at_once // copies) * copies
        losses = []
        for start in range(0, len(y), size):
            part = slice(start, start + size)
            with _opacus_at_work():
                if self._ghost:
                    losses.append(self._add_ghost_clipped(slots, taken(x, part), y[part], bound))
                else:
                    part_losses, gradients = self._per_sample(slots, taken(x, part), y[part], copies)
                    losses.append(part_losses)
                    with torch.no_grad():
                        if sums is None:
                            add_clipped(gradients, bound, self._model.gradient, number)
                        else:
                            sums.add_gradients(gradients, max(0, number - start // copies))
        return torch.cat(losses)

    def of_each(self, x: Any, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns each sample's unclipped gradient, [n, ...] by parameter; with ghost clipping its norm, [n]."""
        self._prepare()
        with _opacus_at_work():
            self._backward(self._losses(x, y))
        trained = {name: parameter for name, parameter in self._parameters.items() if parameter.requires_grad}
        if self._ghost:
            by_parameter = {name: p._norm_sample for name, p in trained.items() if p._norm_sample is not None}  # type: ignore[attr-defined]
        else:
            by_parameter = {name: p.grad_sample.each() for name, p in trained.items() if p.grad_sample is not None}  # type: ignore[attr-defined]
        self._clear()
        return by_parameter

    def _prepare(self) -> list[Slot]:
        """Makes the copy compute like the resident network; returns the slots of the parameters that train."""
        copy_modes(self._model.module, self._network)
        with torch.no_grad():
            for theirs, own in self._tensors:
                own.copy_(theirs)
            self._discrete = self._model.discrete()
            for name, value in self._discrete.items():
                self._network.get_buffer(name).copy_(value)
        slots = self._model.training_slots
        training = {slot.name for slot in slots}
        if unhooked := sorted(training - self._hooked):
            raise ScenarioError(f"local.dp: Opacus computes no per-sample gradients of '{unhooked[0]}'")
        for name, parameter in self._parameters.items():
            parameter.requires_grad_(name in training)
        return slots

    def _losses(self, x: Any, y: torch.Tensor) -> torch.Tensor:
        self._clear()
        losses = self._task.loss(self._wrapped(x), y, "none")
        for name, value in self._discrete.items():  # the copy's buffers, which no one else looks at
            if not torch.equal(self._network.get_buffer(name), value):
                raise changes_under_dp("local.dp", name, self._model.module)
        return losses

    def _backward(self, losses: torch.Tensor, retain_graph: bool = False) -> None:
        """Lets Opacus' hooks see the gradient of every layer's output.

        PyTorch is asked for the gradient of only the smallest parameter of each layer, which saves computing the
        others.
        """
        smallest: list[torch.Tensor] = []
        for module in self._network.modules():
            own = [parameter for parameter in module.parameters(recurse=False) if parameter.requires_grad]
            smallest += sorted(own, key=torch.Tensor.numel)[:1]
        torch.autograd.backward(losses.sum(), retain_graph=retain_graph, inputs=smallest)

    def _clear(self) -> None:
        """Discards the last pass, including that of layers that were called but do not contribute to the loss."""
        for parameter in self._parameters.values():
            parameter.grad = parameter.grad_sample = parameter._norm_sample = None  # type: ignore[attr-defined]
            parameter._forward_counter = 0  # type: ignore[attr-defined]
            vars(parameter).pop("_current_grad_sample", None)
        for module in self._network.modules():
            vars(module).pop("activations", None)
            vars(module).pop("max_batch_len", None)

    def _per_sample(
        self, slots: list[Slot], x: Any, y: torch.Tensor, copies: int
    ) -> tuple[torch.Tensor, list[tuple[Slot, SampleGradients]]]:
        """Per-sample losses and gradients; a parameter that the outputs do not depend on has none."""
        losses = self._losses(x, y)
        self._backward(losses)
        by_slot = [(slot, self._parameters[slot.name].grad_sample) for slot in slots]  # type: ignore[attr-defined]
        gradients = [(slot, mean_of_copies(gradient, copies)) for slot, gradient in by_slot if gradient is not None]
        self._clear()
        return losses.detach(), gradients

    def _add_ghost_clipped(self, slots: list[Slot], x: Any, y: torch.Tensor, bound: float) -> torch.Tensor:
        losses = self._losses(x, y)
        self._backward(losses, retain_graph=True)
        trained = [self._parameters[slot.name] for slot in slots]
        norms = [p._norm_sample for p in trained if p._norm_sample is not None]  # type: ignore[attr-defined]
        total = torch.stack(norms).norm(dim=0)
        self._clear()
        if not (finite := total.isfinite()).all():
            if finite.any():
                self._add_ghost_clipped(slots, taken(x, finite), y[finite], bound)
            return losses.detach()
        factors = clipping_factors(total, bound)
        self._wrapped.disable_hooks()
        torch.autograd.backward((factors.detach() * losses).sum())
        self._wrapped.enable_hooks()
        for slot, parameter in zip(slots, trained, strict=True):
            if parameter.grad is not None:
                slot.view(self._model.gradient).add_(parameter.grad)
        self._clear()
        return losses.detach()


def norm_sampled(layer: nn.Module) -> bool:
    """Whether Opacus computes the norms of a layer's per-sample gradients without the gradients (ghost clipping)."""
    return type(layer) in _GhostClipping.NORM_SAMPLERS


def taken(x: Any, part: slice | torch.Tensor) -> Any:
    """Returns some of a batch's inputs, which may be named."""
    return {name: tensor[part] for name, tensor in x.items()} if isinstance(x, dict) else x[part]


@contextmanager
def _opacus_at_work() -> Iterator[None]:
    with warnings.catch_warnings():
        # raised by layers that read the inputs themselves, for which there is no gradient
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        # a module with parameters of its own is differentiated as a whole, with the attention and the tokens inside it
        warnings.filterwarnings("ignore", message=f"There is a performance drop.* the batching rule for {_ATTENTION}")
        warnings.filterwarnings("ignore", message="In CPU autocast", module=r"opacus\.grad_sample\.functorch")
        yield


class _OfTrained:
    """Hooks for the parameters that train at the moment, in any mode; Opacus' own only see layers in training mode.

    They give Opacus contiguous tensors: it reads others incorrectly.
    """

    def capture_activations_hook(self, module: nn.Module, inputs: list[torch.Tensor], output: torch.Tensor) -> None:
        training, module.training = module.training, True
        try:
            contiguous = [tensor.contiguous() for tensor in inputs]
            super().capture_activations_hook(module, contiguous, output)  # type: ignore[misc]
        finally:
            module.training = training

    def capture_backprops_hook(
        self, module: nn.Module, to_inputs: Any, to_outputs: tuple[torch.Tensor, ...], **options: Any
    ) -> None:
        if any(parameter.requires_grad for parameter in module.parameters()):
            contiguous = tuple(tensor.contiguous() for tensor in to_outputs)
            super().capture_backprops_hook(module, to_inputs, contiguous, **options)  # type: ignore[misc]


class _GradSamples(_OfTrained, GradSampleModule):  # type: ignore[misc]
    """Opacus' per-sample gradients, held as `SampleGradients`.

    For a layer that was called once, it keeps the result of Opacus' sampler, which Opacus would copy into a tensor of
    zeros.
    """

    def capture_backprops_hook(
        self, module: nn.Module, to_inputs: Any, to_outputs: tuple[torch.Tensor, ...], **options: Any
    ) -> None:
        trained: list[Any] = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trained or not self.hooks_enabled:
            return
        once = not any(p._forward_counter > 1 or hasattr(p, "_current_grad_sample") for p in trained)
        if not once or isinstance(module, RNNLinear):  # its inputs may have fewer samples than the batch
            super().capture_backprops_hook(module, to_inputs, to_outputs, **options)
            for parameter in trained:
                if isinstance(parameter.grad_sample, torch.Tensor):
                    parameter.grad_sample = Whole(parameter.grad_sample)
            return
        inputs, backprops = self.rearrange_grad_samples(
            module=module, backprops=to_outputs[0].detach().contiguous(), **options
        )
        for parameter, gradients in layer_gradients(module, inputs, backprops).items():
            parameter.grad_sample = gradients  # type: ignore[attr-defined]
        for parameter in trained:
            parameter._forward_counter -= 1
        del module.max_batch_len


class _GhostClipping(_OfTrained, GradSampleModuleFastGradientClipping):  # type: ignore[misc]
    pass
