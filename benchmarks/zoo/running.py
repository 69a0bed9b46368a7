"""Runs networks by PyTorch: the modules themselves, and their files by the EP on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from . import SEQUENCES, ZOO, Network, built

STEPS: Final = 32
"""So many words are written to a cache that grows, before it begins anew."""

_EP: Final = "TorchExecutionProvider"

Run = Callable[[], Sequence[Any]]


def prepare_module(
    path: Path,
    feeds: Mapping[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    compiled: bool,
) -> Run:
    """What runs the module that *path* was exported from, of the same weights.

    Args:
        path: a file of :func:`~.export.exported`.
        compiled: by ``torch.compile`` with its defaults.
    """
    torch.set_num_threads(threads)
    network = _network(path)
    module: Any = built(network)[0]
    if compiled:
        module = torch.compile(module)

    def step(*given: Any) -> Sequence[Any]:
        with torch.inference_mode():
            found = module(*given)
        return (found,) if isinstance(found, torch.Tensor) else found

    return _runs(network, step, [torch.from_numpy(each) for each in feeds.values()])


def prepare_session(
    path: Path,
    feeds: Mapping[str, np.ndarray[Any, Any]],
    threads: int,
    options: Mapping[str, str],
) -> Run:
    """What runs *path* by the EP on PyTorch, every node of it.

    Raises:
        RuntimeError: a node is none of the EP's.
    """
    import onnxplug

    settings = onnxplug.SessionOptions()
    settings.intra_op_num_threads = threads
    # the CPU EP computes what constants determine, before the first run
    providers = [("torch", options), "cpu"]
    session = onnxplug.InferenceSession(path, settings, providers=providers)
    elsewhere = {node.op_type for node in session.explain().nodes if node.ep != _EP}
    if elsewhere:
        raise RuntimeError(f"{path.name} is not wholly on {_EP}: {sorted(elsewhere)}")

    def step(*given: Any) -> Sequence[Any]:
        return session.run(None, dict(zip(feeds, given, strict=True)))

    return _runs(_network(path), step, list(feeds.values()))


def _network(path: Path) -> Network:
    return (ZOO | SEQUENCES)[path.stem]


def _runs(
    network: Network, step: Callable[..., Sequence[Any]], first: list[Any]
) -> Run:
    """Calls of *step*, each with what the last one kept where the network grows."""
    if not network.grows:
        return lambda: step(*first)
    given, count = first, 0

    def run() -> Sequence[Any]:
        nonlocal given, count
        found = step(*given)
        count += 1
        given = [first[0], *found[1:]] if count % STEPS else first
        return found

    return run
