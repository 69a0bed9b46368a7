"""Compares the EP on CUDA with PyTorch and ONNX Runtime on the same card.

    python benchmarks/cuda_ep.py [--models NAME …] [--peers torch] …

It writes ``benchmarks/results/cuda/CARD.json`` and the EP's page in the docs.  The
arguments are those of ``compare.py``, of which ``--threads 1`` and ``--no-start`` are
as if given; ``--option`` is for the EP; with ``--json``, another file is written, and
no page.  Inputs and
outputs stay on the card, and a run is timed to its end there.  *graph* is the EP with
``enable_cuda_graph``; ``torch.compile`` has the mode ``reduce-overhead``, which has
CUDA graphs; ``onnxruntime`` needs a build with its CUDA EP, such as onnxruntime-gpu,
and is reported as failed without.  Processes take turns.  Errors are against what
PyTorch computes in float64.  The report has the card, the most that products and
copies reach on it, and what sessions that share it take.  Whoever has a card can send
what it writes.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from comparison import Files, Runtime, main
from report import CARDS, write_cards

ON_CUDA: Final = {"device": "cuda"}
OURS: Final = (
    Runtime("graph", "onnxplug-cuda", {**ON_CUDA, "enable_cuda_graph": "1"}),
    Runtime(
        "graph, channels last",
        "onnxplug-cuda",
        {**ON_CUDA, "enable_cuda_graph": "1", "prefer_nhwc": "1"},
    ),
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


def results(name: str) -> Path:
    """The file of what is measured on the card of a name."""
    return CARDS / f"{'-'.join(re.findall('[a-z0-9]+', name.lower()))}.json"


def measure(words: Sequence[str]) -> None:
    """Measure, and write the file and the page."""
    from on_cuda import card, free
    from sharing import sharing

    machine = card()
    given = ["--threads", "1", "--no-start", *words]
    writes_page = "--json" not in words
    if writes_page:
        path = results(machine["card"])
        path.parent.mkdir(parents=True, exist_ok=True)
        given += ["--json", str(path)]
    main(
        __doc__,
        networks(),
        given,
        ours=OURS,
        peers=PEERS,
        of_the_machine=lambda: machine | {"sharing": sharing(free)},
    )
    if writes_page:
        write_cards()


if __name__ == "__main__":
    if problem := lacking():
        sys.exit(problem)
    measure(sys.argv[1:])
