"""Compares the EP on PyTorch, on the processor, with PyTorch itself.

    python benchmarks/torch_ep.py [--models NAME …] [--threads 1,2] [--peers torch] …

The arguments are those of ``compare.py``; ``--option`` is for the EP.  ``torch`` runs
the module that a model was exported from as it is, ``torch.compile`` compiles it, and
``onnxplug, compiled`` is the EP with its option ``compile``.  Errors are against what
PyTorch computes in float64.  Of ``gpt2-decode`` each run takes the cache of the one
before, which grows from 100 words to 131, and begins anew.
"""

from __future__ import annotations

import importlib.util
import sys

from comparison import Files, Runtime, main

NETWORKS = (
    "resnet50",
    "mobilenetv2",
    "unet",
    "whisper-encoder",
    "bert-base",
    "gpt2-decode",
    "lstm",
)
OURS = (
    Runtime("onnxplug", "onnxplug-torch"),
    Runtime("onnxplug, compiled", "onnxplug-torch", {"compile": "1"}),
)
PEERS = (
    Runtime("torch", "torch"),
    Runtime("torch.compile", "torch", {"compile": "1"}),
)

if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        sys.exit("torch_ep.py needs PyTorch: make .venv/exporters.stamp")
    from zoo import SEQUENCES, ZOO, exported

    main(
        __doc__,
        {
            name: lambda _, name=name: Files(*exported((ZOO | SEQUENCES)[name], name))
            for name in NETWORKS
        },
        ours=OURS,
        peers=PEERS,
    )
