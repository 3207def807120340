"""Properties of PyTorch and the machine that can change the last bits of a result."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import torch


def platform_facts(device: torch.device) -> dict[str, str]:
    """Describes this process for the records: PyTorch's version, CPU capability, threads, and CUDA settings if used.

    A precision is `tf32` if float32 is first rounded to TensorFloat-32, `ieee` if not, and `none` if PyTorch's global
    setting decides.

    Args:
        device: The device that this process computes on.
    """
    facts = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
    }
    if device.type == "cuda":
        facts |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "compute_capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
            "matmul_precision": torch.backends.cuda.matmul.fp32_precision,
            "convolution_precision": torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
            "rnn_precision": torch.backends.cudnn.rnn.fp32_precision,  # type: ignore[attr-defined]
            "cudnn_deterministic": str(torch.backends.cudnn.deterministic).lower(),
        }
    return facts


def processor_name(device: torch.device) -> str:
    """Names the kind of a device, which affects the last bits: the GPU's model or the CPU's instruction set."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def differing_hosts(hosts: Sequence[Mapping[str, str]]) -> str | None:
    """Names the hosts that run on different kinds of devices.

    Args:
        hosts: The result of `Host.describe` for each.

    Returns:
        One sentence, or None if all are of one kind.
    """
    kinds: dict[str, list[str]] = {}
    for host in hosts:
        kinds.setdefault(host["processor"], []).append(host["host"])
    if len(kinds) <= 1:
        return None
    named = "; ".join(f"worker{'s' * (len(of) > 1)} {', '.join(of)}: {kind}" for kind, of in kinds.items())
    return (
        f"the workers' processors differ ({named}), so another placement can change the last bits of the result; for "
        "identical bits in every run, use nodes of one kind"
    )
