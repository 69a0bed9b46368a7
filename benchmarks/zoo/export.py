"""Writes networks as ONNX files, with inputs and what float64 gives for them."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import models.exported
import numpy as np
import torch
from torch import Tensor, nn

from .weights import draw_weights

Exporter: TypeAlias = Literal["torchscript", "dynamo"]


Feeds: TypeAlias = Mapping[str, Tensor]


class Network(NamedTuple):
    """A network to export.

    Attributes:
        build: its constructor, with sizes as keyword arguments.
        inputs: the shape of each input, by name.
        exporter: which of PyTorch's.
        words: of an input ``input_ids`` the numbers are below this.
        write: exports it, where axes are left open.
        grows: all outputs but the first are all inputs but the first of a next run.
        dtype: of floats, weights too, which are drawn in float32 and rounded; ``None``:
            of those that *build* gives them.
    """

    build: Callable[..., nn.Module]
    inputs: Mapping[str, Sequence[int]]
    exporter: Exporter = "dynamo"
    words: int = 0
    write: Callable[[Any, Exporter, Path], None] | None = None
    grows: bool = False
    dtype: torch.dtype | None = None


class Exported(NamedTuple):
    """Files: a model, its inputs by name, and its outputs in float64 in their order."""

    model: Path
    feeds: Path
    expected: Path


def built(network: Network, **sizes: Any) -> tuple[nn.Module, Feeds]:
    """The module of *network* and inputs, with weights and numbers of a fixed seed."""
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        # of what is to come of it: its own affair
        warnings.simplefilter("ignore")
        model = network.build(**sizes).eval().requires_grad_(False)
        feeds = drawn_feeds(network)
        draw_weights(model, feeds)
        if network.dtype is not None:
            model, feeds = model.to(network.dtype), converted(feeds, network.dtype)
        return model, feeds


def drawn_feeds(network: Network) -> Feeds:
    """Inputs of *network*, in float32, of PyTorch's generator."""
    return {
        key: torch.randint(network.words, tuple(shape))
        if key == "input_ids"
        else torch.randn(*shape)
        for key, shape in network.inputs.items()
    }


def converted(feeds: Feeds, dtype: torch.dtype) -> Feeds:
    """The same with floats of another type."""
    return {
        key: value.to(dtype) if value.is_floating_point() else value
        for key, value in feeds.items()
    }


def export(network: Network, folder: Path, name: str, **sizes: Any) -> Exported:
    """Export *network* into *folder*, with weights and inputs of a fixed seed.

    float64 is PyTorch's own, of the network before it is exported.
    """
    files = _files(folder, name)
    model, feeds = built(network, **sizes)
    with torch.no_grad(), warnings.catch_warnings():
        # of what it traces, of itself and of its future: its own affair, all of it
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        double = copy.deepcopy(model).double()
        found = double(*converted(feeds, torch.float64).values())
        del double
        if network.write is None:
            _write(model, feeds, network.exporter, files.model)
        else:
            network.write(model, network.exporter, files.model)
    outputs: Sequence[Tensor] = (found,) if isinstance(found, Tensor) else found
    assert all(output.isfinite().all() for output in outputs)
    np.savez(files.feeds, **{key: value.numpy() for key, value in feeds.items()})
    np.savez(files.expected, *(output.numpy() for output in outputs))
    return files


def _files(folder: Path, name: str) -> Exported:
    return Exported(
        folder / f"{name}.onnx",
        folder / f"{name}.feeds.npz",
        folder / f"{name}.expected.npz",
    )


def _write(model: nn.Module, feeds: Feeds, exporter: Exporter, path: Path) -> None:
    if exporter == "torchscript":
        torch.onnx.export(
            model, tuple(feeds.values()), path, input_names=list(feeds), dynamo=False
        )
        return
    torch.onnx.export(
        model,
        tuple(feeds.values()),
        path,
        input_names=list(feeds),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def exported(network: Network, name: str, folder: Path | None = None) -> Exported:
    """Export *network*, or find what was exported before by the same code.

    Without a *folder*, one within the user's cache is used.
    """
    if folder is None:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches) / "onnxplug-benchmarks" / _code()
    files = _files(folder, name)
    if not all(file.exists() for file in files):
        folder.mkdir(parents=True, exist_ok=True)
        # nobody finds half a file
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            written = export(network, Path(unfinished), name)
            for file, target in zip(written, files, strict=True):
                file.rename(target)
    return files


def _code() -> str:
    """A name for all that the files depend on but the network."""
    digest = hashlib.sha256()
    for package in ("torch", "onnxscript", "transformers", "onnx"):
        digest.update(f"{package} {version(package)}\n".encode())
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for source in (*sources, Path(models.exported.__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
