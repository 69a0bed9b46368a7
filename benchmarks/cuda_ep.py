"""Compares the EP on CUDA with PyTorch and ONNX Runtime on the same card.

    python benchmarks/cuda_ep.py --threads 1 --no-start \\
        --json benchmarks/results/cuda/CARD.json [--models NAME …] [--peers torch] …
    python benchmarks/report.py

The arguments are those of ``compare.py``; ``--option`` is for the EP.  Inputs and
outputs stay on the card, and a run is timed to its end there.  *graph* is the EP with
``enable_cuda_graph``; ``torch.compile`` has the mode ``reduce-overhead``, which has
CUDA graphs; ``onnxruntime`` needs a build with its CUDA EP, such as onnxruntime-gpu,
and is reported as failed without.  Processes take turns.  Errors are against what
PyTorch computes in float64.  The report has the card, and the most that products and
copies reach on it.  It never ran in our hands: whoever has a card can send what it
writes.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from comparison import Files, Runtime, main

ON_CUDA: Final = {"device": "cuda"}
OURS: Final = (
    Runtime("graph", "onnxplug-cuda", {**ON_CUDA, "enable_cuda_graph": "1"}),
    Runtime("onnxplug", "onnxplug-cuda", ON_CUDA),
)
PEERS: Final = (
    Runtime("torch", "torch", ON_CUDA),
    Runtime("torch.compile", "torch", {**ON_CUDA, "compile": "reduce-overhead"}),
    Runtime("onnxruntime", "onnxruntime", ON_CUDA),
)


def networks() -> dict[str, Callable[[Path], Files]]:
    """What writes their files, by name."""
    from zoo import exported
    from zoo.on_gpus import ON_GPUS

    return {
        name: lambda _, name=name, network=network: Files(*exported(network, name))
        for name, network in ON_GPUS.items()
    }


def lacking() -> str:
    """Why nothing can be measured; empty if it can."""
    if importlib.util.find_spec("torch") is None:
        return (
            "cuda_ep.py needs PyTorch, built for CUDA: https://pytorch.org/get-started"
        )
    import torch

    if not torch.cuda.is_available():
        return f"cuda_ep.py needs a GPU that PyTorch {torch.__version__} finds"
    return ""


if __name__ == "__main__":
    if problem := lacking():
        sys.exit(problem)
    from on_cuda import card

    main(__doc__, networks(), ours=OURS, peers=PEERS, of_the_machine=card)
