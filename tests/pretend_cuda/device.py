"""A GPU that only PyTorch's Python layer believes in, to run CUDA code paths on a machine without one.

Tensors stay ordinary CPU tensors, with real values, autograd and addresses; storages that were made for
`device="cuda"` are tagged. A TorchFunctionMode translates devices (`torch.zeros(..., device="cuda")`, `.to("cuda")`,
`.cpu()`), answers `.device` and `.is_cuda`, and refuses what CUDA refuses, such as `.numpy()`. A TorchDispatchMode
below autograd sees every operator, those of the backward pass too: it refuses to mix devices, hands the tags on to
results, and counts what a GPU would do: kernels, copies between host and device, and waits of the host for the device.

It cannot show the kernels of CUDA themselves (their bits, which are deterministic, which exist), streams, or memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import rayfl
from rayfl.config.execution import Resources
from rayfl.engine.device import settings_restored

CPU, GPU, EITHER = "cpu", "cuda", "either"
"""Where a storage lies; EITHER: made inside PyTorch without a device, such as the constants of autograd."""

CUDA0 = torch.device("cuda", 0)
PACKAGE = f"{Path(rayfl.__file__).parent}/"

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,  # item, float, int, bool
    aten.equal.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.bincount.default,
    aten.repeat_interleave.Tensor,
}
"""Operators whose result, or its shape, the host has to wait for."""

CROSSING = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor, aten.detach.default}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
WITHOUT_KERNEL = {"alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "new_empty", "set_", "view"}


class PretendCuda(TorchFunctionMode):
    """`with PretendCuda() as gpu:` PyTorch has one GPU.

    Attributes:
        count: How many kernels, copies and waits there were, and how many bytes were copied.
        sites: The same copies and waits by the line of rayfl that caused them.
        seeds: What the GPU's generator was seeded with, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[str]()
        self.sites: dict[str, Counter[str]] = {"copies": Counter(), "waits": Counter()}
        self.seeds: list[int] = []
        self.tags = _Tags()
        self.target: str | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> PretendCuda:
        properties = SimpleNamespace(name="pretended GPU", total_memory=1 << 34, major=9, minor=0)
        fakes = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_name": lambda *_: properties.name,
            "get_device_properties": lambda *_: properties,
            "get_device_capability": lambda *_: (properties.major, properties.minor),
            "mem_get_info": lambda *_: (properties.total_memory, properties.total_memory),
            "empty_cache": lambda: None,
            "synchronize": lambda *_: self.happened("waits"),
            "manual_seed": self.seeds.append,
            "manual_seed_all": self.seeds.append,
            "get_per_process_memory_fraction": lambda *_: 1.0,
            "set_per_process_memory_fraction": lambda *_: None,
            "get_rng_state": lambda *_: torch.empty(16, dtype=torch.uint8, device="cpu"),
            "set_rng_state": lambda *_: None,
        }
        for name, fake in fakes.items():
            self._stack.enter_context(mock.patch.object(torch.cuda, name, fake))
        # it would ask cuDNN for the layout of its chunk of memory
        self._stack.enter_context(mock.patch.object(torch.nn.RNNBase, "flatten_parameters"))
        # whether a CUDA graph is being recorded, which asks the driver
        check = "_accelerator_graph_capture_health_check"
        self._stack.enter_context(mock.patch.object(torch.optim.Optimizer, check))
        self._stack.enter_context(_Operators(self))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._stack.close()

    def happened(self, what: str) -> None:
        """Counts a copy or a wait, and where in rayfl it came from."""
        self.count[what] += 1
        frame = sys._getframe(1)
        while frame.f_back and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame.f_back else "elsewhere"
        self.sites[what][line] += 1

    def copied(self, moved: torch.Tensor, non_blocking: bool = False) -> None:
        """Counts a copy of a tensor between host and device."""
        self.happened("copies")
        self.count["bytes"] += moved.nbytes
        if not non_blocking:
            self.happened("waits")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if tensor is None:
            return self._call(func, args, kwargs)
        on_gpu = self.tags.of(tensor) == GPU
        match name:
            case "__get__":
                return self._attribute(func, tensor, on_gpu)
            case "to":
                return self._to(tensor, args[1:], kwargs)
            case "cuda":
                return self._to(tensor, (CUDA0,), kwargs)
            case "cpu":
                return self._to(tensor, (torch.device("cpu"),), kwargs)
            case "pin_memory":
                return tensor
            case "numpy" | "__array__" if on_gpu:
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
            case "tolist" if on_gpu:
                self.copied(tensor)
            case "new_tensor" if on_gpu and "device" not in kwargs:
                return self._call(func, args, kwargs | {"device": CUDA0})
            case "__deepcopy__":
                copied: torch.Tensor = func(*args, **kwargs)
                self.tags.put(copied, GPU if on_gpu else CPU)
                return copied
            case "lstm" | "gru" if on_gpu:
                _check_backward_of_rnn(args)
        return self._call(func, args, kwargs)

    def _attribute(self, getter: Any, tensor: torch.Tensor, on_gpu: bool) -> Any:
        match getattr(getter.__self__, "__name__", ""):
            case "device" if on_gpu:
                return CUDA0
            case "is_cuda":
                return on_gpu
            case "is_cpu":
                return not on_gpu
        return getter(tensor)

    def _to(self, tensor: torch.Tensor, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        copy = kwargs.pop("copy", False)
        parsed: Any = torch._C._nn._parse_to(*args, **kwargs)
        device, dtype, non_blocking, memory_format = parsed
        layout: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
        if device is not None and device.type not in (CPU, GPU):
            return tensor.to(device, dtype, copy=copy, **layout)
        now = self.tags.of(tensor)
        wanted = now if device is None else device.type
        crosses = wanted != now and EITHER not in (wanted, now)
        with self._making(wanted):
            result = tensor.to(dtype=dtype or tensor.dtype, copy=copy or crosses, **layout)
        if crosses:
            self.copied(result, bool(non_blocking))
        return result

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Any other function of PyTorch's: where it is given a device, its results lie there."""
        name, device = resolve_name(func), kwargs.get("device")
        args = tree_map(lambda a: torch.device("cpu") if isinstance(a, torch.device) and a.type == GPU else a, args)
        if device is None:
            takes_tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))
            with self._making(None if takes_tensors else CPU):
                result = func(*args, **kwargs)
            if name in ("torch.from_numpy", "torch.tensor", "torch.as_tensor"):
                self.tags.put(result, CPU)
            return result
        kind = torch.device(device).type
        with self._making(kind if kind in (CPU, GPU) else None):
            result = func(*args, **kwargs | ({"device": "cpu"} if kind == GPU else {}))
        if kind == GPU and func.__name__ in ("tensor", "as_tensor", "asarray", "new_tensor"):
            self.tags.put(result, GPU)
            self.copied(result)
        return result

    @contextlib.contextmanager
    def _making(self, target: str | None) -> Iterator[None]:
        """Within it, storages are made for this device; None: for that of the operator's arguments."""
        before, self.target = self.target, target
        try:
            yield
        finally:
            self.target = before


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What sees every operator, the function that the user called being one or many of them."""

    def __init__(self, gpu: PretendCuda) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpu, kwargs = self.gpu, kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        tags = [gpu.tags.of(tensor) for tensor in tensors]
        on_gpu = GPU in tags
        if on_gpu:
            self._check_devices(func, args, tensors, tags)
        if func is aten.copy_.default and gpu.target is None and {*tags} == {CPU, GPU} and args[1].dim():
            gpu.copied(args[0], bool(kwargs.get("non_blocking", len(args) > 2 and args[2])))
        result = func(*args, **kwargs)
        if on_gpu and (func in WAITING or (func in INDEXING and any(t.dtype == torch.bool for t in tensors[1:]))):
            gpu.happened("waits")
        self._tag(result, tensors, tags)
        name = func._schema.name.removeprefix("aten::")
        if (on_gpu or gpu.target == GPU) and not func.is_view and name not in WITHOUT_KERNEL:
            gpu.count["kernels"] += 1
        return result

    def _check_devices(self, func: Any, args: Any, tensors: list[torch.Tensor], tags: list[str]) -> None:
        """Only single numbers and indices may come from the host."""
        strange = [tensor for tensor, tag in zip(tensors, tags, strict=True) if tag == CPU and tensor.dim()]
        if func in INDEXING and self.gpu.tags.of(args[0]) == GPU:
            for indices in strange:
                self.gpu.copied(indices)
        elif strange and func not in CROSSING:
            found = ", ".join(f"{tag}{list(tensor.shape)}" for tensor, tag in zip(tensors, tags, strict=True))
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {found}")

    def _tag(self, result: Any, tensors: list[torch.Tensor], tags: list[str]) -> None:
        """New storages lie where they were asked for, else where the arguments lie."""
        known = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided}
        derived = GPU if GPU in tags else CPU if CPU in tags else EITHER
        for output in tree_leaves(result):
            if not isinstance(output, torch.Tensor) or output.layout != torch.strided:
                continue
            if output.untyped_storage()._cdata not in known:
                self.gpu.tags.put(output, self.gpu.target or derived)


class _Tags:
    """Where storages lie. Weak references keep a storage's address from being given to another one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, str]] = {}

    def of(self, tensor: torch.Tensor) -> str:
        if tensor.layout != torch.strided:
            return EITHER
        known = self._known.get(_plain(tensor).untyped_storage()._cdata)
        return known[1] if known else CPU

    def put(self, tensor: torch.Tensor, tag: str) -> None:
        storage = _plain(tensor).untyped_storage()
        self._known[storage._cdata] = (StorageWeakRef(storage), tag)  # type: ignore[no-untyped-call]
        if len(self._known) > 4000:
            kept = ((key, value) for key, value in self._known.items() if not value[0].expired())  # type: ignore[no-untyped-call]
            self._known = dict(kept)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that vmap or a gradient of torch.func has wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _check_backward_of_rnn(args: Any) -> None:
    """On CUDA this is raised in the backward pass."""
    if len(args) < 7 or args[6] or not torch.is_grad_enabled():
        return
    if any(weight.requires_grad for weight in tree_leaves(args[2]) if isinstance(weight, torch.Tensor)):
        raise RuntimeError("cudnn RNN backward can only be called in training mode")


@contextlib.contextmanager
def pretend_cuda() -> Iterator[PretendCuda]:
    """Pretends, and leaves PyTorch's process-wide settings as they were."""
    with settings_restored(Resources()), PretendCuda() as gpu:
        yield gpu
