"""Models with random weights, in the form that PyTorch's exporters give them.

``MODELS[name]()`` builds one in memory, with inputs; the seed is fixed, so it is the
same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .decoders import gpt2, llama
from .encoders import bert, distilbert, vit
from .graph import Case, Exporter
from .small import chain, mlp, one_add

MODELS: Mapping[str, Callable[[], Case]] = {
    "mlp": mlp,
    "bert-base": lambda: bert(Exporter.DYNAMO),
    "bert-base-torchscript": lambda: bert(Exporter.TORCHSCRIPT),
    "distilbert": distilbert,
    "vit-b16": vit,
    "gpt2-prefill": lambda: gpt2(128, 0),
    "gpt2-decode": lambda: gpt2(1, 128),
    "llama-prefill": lambda: llama(64, 0),
    "llama-decode": lambda: llama(1, 64),
    "add": one_add,
    "chain": chain,
}
"""Sequences are of 128 tokens, the Llama-like layers' of 64; a decoder that decodes
makes one token after as many; images are 224²."""

__all__ = ["MODELS", "Case", "Exporter"]
