"""Converts texts to token numbers with a tokenizer of `transformers`. Requires rayfl[text]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rayfl.data.formats.digested import FileDigest, read_file
from rayfl.data.inputs import Fields
from rayfl.errors import DataError, ScenarioError

_FILES = ("tokenizer.json", "vocab.txt")
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "config.json")


def tokenized(texts: Sequence[str], folder: Path, length: int) -> tuple[Fields, list[FileDigest]]:
    """Tokenizes texts for a network of `transformers`, truncated or padded to one length.

    Args:
        texts: At least one.
        folder: Folder of a tokenizer, as written by `save_pretrained`.
        length: Tokens per text, including special ones.

    Returns:
        `input_ids` [n, length] int32 and `attention_mask` [n, length] bool, false for padding; and the digests of the
        tokenizer files.

    Raises:
        ScenarioError: `transformers` is not installed.
        DataError: The folder has no tokenizer, or the tokenizer cannot be read or has no padding.
    """
    if not any((folder / name).is_file() for name in _FILES):
        raise DataError(
            f"data.options.tokenizer: {folder} has no tokenizer ({' or '.join(_FILES)}); give the folder of a "
            "DistilBERT with its tokenizer"
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ScenarioError("data.options.tokenizer: needs transformers; pip install 'rayfl[text]'") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        found = tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=length, return_attention_mask=True
        )
    except Exception as error:  # its exceptions have no common base class
        said = " ".join(str(error).split())
        raise DataError(f"data.options.tokenizer: {folder} has no usable tokenizer ({said})") from error
    files = [read_file(folder / name)[1] for name in (*_FILES, *_SETTINGS) if (folder / name).is_file()]
    return fields(np.array(found["input_ids"], np.int32), np.array(found["attention_mask"], bool)), files


def fields(numbers: np.ndarray, read: np.ndarray) -> Fields:
    """Inputs of a network of `transformers`: token numbers and the attention mask, both [n, length]."""
    return Fields({"input_ids": numbers, "attention_mask": read})
