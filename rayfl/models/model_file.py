"""Writes a model in safetensors format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from rayfl.errors import ResourceError
from rayfl.files import atomic_write


def write_model(path: Path, state_dict: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors under their PyTorch names; views into one storage are stored separately, as copies.

    Raises:
        ResourceError: The file cannot be written.
    """
    tensors, stored = {}, set[int]()
    for name, tensor in state_dict.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        shares = storage.nbytes() != plain.nbytes or storage.data_ptr() in stored
        tensors[name] = plain.clone() if shares else plain
        stored.add(storage.data_ptr())
    try:
        with atomic_write(path) as temporary:
            safetensors.torch.save_file(tensors, temporary, dict(metadata) if metadata else None)
    except (OSError, safetensors.SafetensorError) as error:  # safetensors also raises its own error on a full disk
        raise ResourceError(f"cannot write '{path}': {getattr(error, 'strerror', None) or error}") from error
