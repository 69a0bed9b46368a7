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
        SessionRefused: a node is none of the EP's.
    """
    import onnxplug

    settings = onnxplug.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxplug.InferenceSession(path, settings, providers=[("torch", options)])

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
